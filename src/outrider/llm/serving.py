"""The owner's thread: it takes messages in, runs rounds for all callers, and hands results out."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty

from outrider.engine.engine import Engine
from outrider.llm.desk import Desk, Entry, Message
from outrider.types.errors import RequestError


def serve(desk: Desk) -> None:
    """Take messages in, run rounds, hand results out."""
    while _read_inbox(desk):
        engine = desk.engine()
        if engine is None:
            break
        _publish(desk, engine)
        if desk.wants_rounds:
            _step(desk, engine)
            _publish(desk, engine)
        del engine  # nothing here keeps it alive while the thread sleeps
    _dismiss(desk)


def _read_inbox(desk: Desk) -> bool:
    """Take in what has arrived, asleep until something has if no round is wanted.

    Returns:
        False if the thread is to end.
    """
    while True:
        try:
            message = desk.inbox.get(block=not desk.wants_rounds)
        except Empty:
            return True
        engine = desk.engine()
        if message is None or engine is None:
            if message is not None:
                desk.waiting.append(message)
            return False
        _take_in(desk, engine, message)
        if desk.inbox.empty():
            return True


def _take_in(desk: Desk, engine: Engine, message: Message) -> None:
    if message.arriving:
        _accept(desk, engine, message.arriving)
    if message.reading is not None:
        message.reading.ahead = 0
    if message.closing is not None and message.closing in desk.entries:
        _end(desk, engine, message.closing)
    desk.waiting.append(message)


def _accept(desk: Desk, engine: Engine, group: Sequence[Entry]) -> None:
    """Give a group to the engine; if one request is refused, the group is."""
    names: list[str] = []
    try:
        for entry in group:
            names.append(engine.add(entry.request))
    except BaseException as error:  # it belongs to whoever handed the group in
        for name in names:
            engine.abort(name)
        for entry in group:
            entry.error = error
        return
    for entry, name in zip(group, names, strict=True):
        entry.request_id = name
    desk.entries.extend(group)


def _step(desk: Desk, engine: Engine) -> None:
    """Run one round. One that cannot be run is the end of all requests, and their callers know."""
    try:
        engine.step()
    except BaseException as error:  # sessions stand as before it, but would only meet it again
        for entry in desk.entries:
            entry.error = error
    for entry in desk.entries:
        if entry.ahead is not None:
            entry.ahead += 1


def _publish(desk: Desk, engine: Engine) -> None:
    """Hand out what rounds have made, whoever ran them, and answer whom it concerns."""
    for entry in list(desk.entries):
        name = entry.request_id or ""
        if entry.abandoned or entry.error is not None:
            engine.abort(name)
            desk.entries.remove(entry)
        elif not engine.has(name):
            entry.error = RequestError("request", f"{name} was removed from the engine")
            desk.entries.remove(entry)
        elif engine.is_finished(name):
            _end(desk, engine, entry)
        elif entry.ahead is not None:
            entry.text = engine.text(name)
    _answer(desk)


def _end(desk: Desk, engine: Engine, entry: Entry) -> None:
    """Take an entry's output out of the engine; what still runs is cancelled."""
    output = engine.take(entry.request_id or "")
    entry.text = output.outputs[0].text
    entry.output = output
    desk.entries.remove(entry)


def _answer(desk: Desk) -> None:
    """Let callers go on who have what they came for."""
    left = []
    for message in desk.waiting:
        if message.gone:
            continue
        if message.answered():
            message.news.put(None)
        else:
            left.append(message)
    desk.waiting[:] = left


def _dismiss(desk: Desk) -> None:
    """Tell everybody that nothing more will come."""
    desk.closed = True
    while not desk.inbox.empty():
        message = desk.inbox.get()
        if message is not None:
            desk.waiting.append(message)
    engine = desk.engine()
    entries = [*desk.entries, *(entry for message in desk.waiting for entry in message.arriving)]
    for entry in entries:
        if not entry.ended:
            # Whoever waits for all of it is told; whoever closes a stream gets what there is.
            entry.error = RequestError("llm", "was closed while this request ran")
            if engine is not None and engine.has(entry.request_id or ""):
                entry.output = engine.take(entry.request_id or "")
                entry.text = entry.output.outputs[0].text
    desk.entries.clear()
    _answer(desk)
