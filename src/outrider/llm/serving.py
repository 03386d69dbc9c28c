"""The owner's thread: it takes messages in, runs rounds for all callers, and hands results out."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty
from typing import Final

from outrider.engine.engine import Engine
from outrider.llm.desk import Desk, Entry, Message
from outrider.types.errors import RequestError

#: Turns in a row that may fail before the thread gives up. One fails if something goes wrong that
#: belongs to no request; whatever does belong to one is told to its callers, and others go on.
MOST_FAILURES: Final = 3


def serve(desk: Desk) -> None:
    """Take messages in, run rounds, hand results out; leave a desk alone that is served already."""
    if not desk.claim():
        return
    failures = 0
    while failures < MOST_FAILURES:
        try:
            if not _turn(desk):
                break
            failures = 0
        except BaseException as error:  # callers wait, and must hear of it
            failures += 1
            if failures == MOST_FAILURES:
                desk.fault = error
            _fail(_everybody(desk), error)
    _dismiss(desk)


def _turn(desk: Desk) -> bool:
    """Serve what is there, then take in what comes next; False if the thread is to end."""
    engine = desk.engine()
    if engine is None:
        return False
    _publish(desk, engine)
    if desk.wants_rounds:
        _step(desk, engine)
        _publish(desk, engine)
    del engine  # nothing here keeps it alive while the thread sleeps
    return _read_inbox(desk)


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
        if message is None:
            return False
        desk.waiting.append(message)
        engine = desk.engine()
        if engine is None:
            return False
        try:
            _take_in(desk, engine, message)
        except BaseException as error:  # it belongs to whoever sent the message
            _fail(message.concerned, error)
        if desk.inbox.empty():
            return True


def _take_in(desk: Desk, engine: Engine, message: Message) -> None:
    if message.arriving:
        _accept(desk, engine, message.arriving)
    if message.reading is not None:
        message.reading.ahead = 0
    if message.closing is not None and message.closing in desk.entries:
        _end(desk, engine, message.closing)


def _accept(desk: Desk, engine: Engine, group: Sequence[Entry]) -> None:
    """Give a group to the engine; if one request is refused, the group is."""
    names: list[str] = []
    try:
        for entry in group:
            names.append(engine.add(entry.request))
    except BaseException as error:  # it belongs to whoever handed the group in
        for name in names:
            engine.abort(name)
        _fail(group, error)
        return
    for entry, name in zip(group, names, strict=True):
        entry.request_id = name
    desk.entries.extend(group)


def _step(desk: Desk, engine: Engine) -> None:
    """Run one round. One that cannot be run is the end of all requests, and their callers know."""
    try:
        engine.step()
    except BaseException as error:  # sessions stand as before it, but would only meet it again
        _fail(desk.entries, error)
    for entry in desk.entries:
        if entry.ahead is not None:
            entry.ahead += 1


def _publish(desk: Desk, engine: Engine) -> None:
    """Hand out what rounds have made, whoever ran them, and answer whom it concerns."""
    for entry in list(desk.entries):
        try:
            _hand_out(desk, engine, entry)
        except BaseException as error:  # it belongs to this request; the next time it is removed
            _fail([entry], error)
    _answer(desk)


def _hand_out(desk: Desk, engine: Engine, entry: Entry) -> None:
    """Hand out what one request has; one that is of no use to anybody leaves the engine."""
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


def _end(desk: Desk, engine: Engine, entry: Entry) -> None:
    """Take an entry's output out of the engine; what still runs is cancelled."""
    output = engine.take(entry.request_id or "")
    entry.text = output.outputs[0].text
    entry.output = output
    desk.entries.remove(entry)


def _fail(entries: Sequence[Entry], error: BaseException) -> None:
    """Tell the callers of requests that have not ended why they never will."""
    for entry in entries:
        if not entry.ended:
            entry.error = error


def _everybody(desk: Desk) -> list[Entry]:
    """All requests that somebody may wait for, taken in or not."""
    arriving = [entry for message in desk.waiting for entry in message.arriving]
    return [*desk.entries, *arriving]


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
    entries = _everybody(desk)
    # Whoever waits for all of it is told; whoever closes a stream gets what there is.
    _fail(entries, desk.fault or RequestError("llm", "was closed while this request ran"))
    for entry in entries:
        if entry.output is None and engine is not None and engine.has(entry.request_id or ""):
            entry.output = engine.take(entry.request_id or "")
            entry.text = entry.output.outputs[0].text
    desk.entries.clear()
    _answer(desk)
