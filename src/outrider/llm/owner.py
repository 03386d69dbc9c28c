"""One thread that owns an engine, and serves whoever calls.

Callers hand messages in and wait for an answer; the owner's thread alone runs rounds, for all of
them together. So calls from any number of threads share batches, and an interrupt, which Python
raises in the main thread, ends a wait there and never a round.

Nothing is locked: what callers and the owner share is two kinds of queue, and fields that the owner
alone writes. An interrupt between any two instructions of a caller leaves nothing held.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.types.errors import NumericsError, OutriderError, RequestError
from outrider.types.output import RequestOutput

#: Rounds that a stream may run ahead of its reader, so that reading and computing overlap.
AHEAD: Final = 1
#: Bytes of stack that a round needs at least, native code included; Python's own default is more.
LEAST_STACK: Final = 1 << 20
#: Seconds after which a caller looks whether the owner is still there.
PATIENCE: Final = 1.0


@dataclass(eq=False)
class Entry:
    """One request on the owner's desk. Callers read it, and set only ``abandoned``.

    Attributes:
        request: what was asked.
        request_id: its name in the engine, once the engine has it.
        text: what a reader may have, if one follows it.
        output: what became of it, once it has ended.
        error: what its callers are to be told instead.
        ahead: rounds since its reader last came; None if it has no reader.
        abandoned: nobody can ask for it any more.
    """

    request: Request
    request_id: str | None = None
    text: str = ""
    output: RequestOutput | None = None
    error: BaseException | None = None
    ahead: int | None = None
    abandoned: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.output is not None or self.error is not None

    @property
    def accepted(self) -> bool:
        """Whether the engine has taken it, or refused it."""
        return self.request_id is not None or self.error is not None

    @property
    def read_ahead(self) -> bool:
        """Whether a round should run for its reader, who is not waiting at the moment."""
        return self.ahead is not None and self.ahead < AHEAD and not self.ended

    def outcome(self) -> RequestOutput:
        """What became of it, be it a failure of its own; raises what its callers are to be told."""
        if self.error is not None:
            raise self.error
        if self.output is None:
            raise RequestError("request", "has not ended")
        return self.output

    def result(self) -> RequestOutput:
        """What became of it; raises what its callers are to be told, or what made it fail."""
        output = self.outcome()
        if output.error is not None:
            raise output.error
        return output


@dataclass(eq=False)
class Message:
    """What a caller sends: new requests, requests to end, and what it waits for.

    Attributes:
        answered: whether the caller can go on; the owner evaluates it after every round.
        entries: requests that rounds should run for until then.
        arriving: requests for the engine, all or none.
        reading: the request whose text the caller has come for.
        closing: the request to end where it stands.
        gone: the caller does not wait any more.
        news: where the caller waits.
    """

    answered: Callable[[], bool]
    entries: Sequence[Entry] = ()
    arriving: Sequence[Entry] = ()
    reading: Entry | None = None
    closing: Entry | None = None
    gone: bool = False
    news: SimpleQueue[None] = field(default_factory=SimpleQueue)

    @property
    def wants_rounds(self) -> bool:
        """Whether rounds should run for it."""
        return not self.gone and any(not e.ended and not e.abandoned for e in self.entries)


@dataclass(eq=False)
class Desk:
    """What the owner's thread works on. It does not hold the engine.

    Attributes:
        engine: the engine, as long as anybody else holds it.
        inbox: messages that the thread has not seen; None ends it.
        entries: requests that the engine has; the thread's own.
        waiting: messages that are not answered yet; the thread's own.
        closed: nothing is accepted any more.
        process: where the thread lives; a forked child has none.
    """

    engine: weakref.ref[Engine]
    inbox: SimpleQueue[Message | None] = field(default_factory=SimpleQueue)
    entries: list[Entry] = field(default_factory=list)
    waiting: list[Message] = field(default_factory=list)
    closed: bool = False
    process: int = field(default_factory=os.getpid)

    @property
    def wants_rounds(self) -> bool:
        """Whether a round should run."""
        return any(message.wants_rounds for message in self.waiting) or any(
            entry.read_ahead for entry in self.entries
        )

    def check(self) -> None:
        """Refuse calls that nobody would answer.

        Raises:
            OutriderError: it is closed, or this is a forked child of its process.
        """
        if self.closed:
            raise RequestError("llm", "has been closed; make a new LLM")
        if os.getpid() != self.process:
            raise OutriderError(
                "this LLM was made before the process was forked, and its threads stayed behind: "
                "make one in the child, or start the child with the spawn method"
            )


class Ticket:
    """A request in the owner's hands. A ticket that is dropped cancels its request."""

    def __init__(self, owner: EngineOwner, request: Request) -> None:
        """Make a ticket that has yet to be handed in."""
        self.entry = Entry(request)
        self._owner = owner  # the engine lives as long as a ticket does
        self._finalizer = weakref.finalize(self, _abandon, owner.desk, self.entry)
        self._finalizer.atexit = False

    def text_after(self, sent: int) -> str:
        """Wait for text beyond the first ``sent`` characters; "" when there will be none.

        Raises:
            Exception: what made the request fail, after all of its text.
        """
        entry = self.entry

        def come() -> bool:
            return entry.ended or len(entry.text) > sent

        self._owner.send(Message(come, entries=[entry], reading=entry))
        if len(entry.text) > sent:
            return entry.text[sent:]
        entry.result()
        return ""

    def close(self) -> RequestOutput:
        """Cancel the request if it still runs, and return what it has produced.

        Raises:
            BaseException: the engine could not go on.
        """
        entry = self.entry
        if not entry.ended:
            self._owner.send(Message(lambda: entry.ended, closing=entry))
        return entry.output or entry.result()

    def abandon(self) -> None:
        """Cancel the request without waiting; nobody will ask for it."""
        self._finalizer()


class EngineOwner:
    """Runs an engine in a thread of its own while somebody waits.

    Rounds run while a caller waits for an output or for text, and one round ahead of each reader of
    a stream; otherwise the thread sleeps.

    Attributes:
        desk: what the thread works on.
    """

    def __init__(self, engine: Engine) -> None:
        """The thread starts with the first message."""
        self.desk = Desk(weakref.ref(engine))
        self._engine: Engine | None = engine  # alive as long as this is
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._close = weakref.finalize(self, _close, self.desk, None)

    def submit(self, requests: Sequence[Request]) -> list[Ticket]:
        """Hand requests in, all or none.

        Raises:
            RequestError: one of them cannot be served; none of them is then.
        """
        tickets = [Ticket(self, request) for request in requests]
        group = [ticket.entry for ticket in tickets]
        if group:
            self.send(Message(lambda: all(e.accepted for e in group), arriving=group))
        for entry in group:
            if entry.error is not None:
                raise entry.error
        return tickets

    def outputs(
        self, tickets: Sequence[Ticket], progress: Callable[[int], None]
    ) -> list[RequestOutput]:
        """Wait until all have ended. One that fails keeps nobody else from ending.

        Args:
            tickets: what ``submit`` returned.
            progress: told how many have ended, whenever that changes.

        Raises:
            NumericsError: the model's output for one of them is not finite; the error has the
                outputs of all.
            Exception: what else made the first of them fail; at once if the engine could not go on.
        """
        entries = [ticket.entry for ticket in tickets]
        known = 0
        while known < len(entries):
            self.send(Message(partial(_more_ended, entries, known), entries=entries))
            known = _ended(entries)
            for entry in entries:
                if entry.ended:
                    entry.outcome()
            progress(known)
        outputs = [entry.outcome() for entry in entries]
        failure = next((output.error for output in outputs if output.error is not None), None)
        if isinstance(failure, NumericsError):
            # Another one: its traceback holds this frame, which must not hold itself.
            raise NumericsError(failure.place, outputs) from failure
        if failure is not None:
            raise failure
        return outputs

    def send(self, message: Message) -> None:
        """Send a message and wait until it is answered.

        Raises:
            OutriderError: nobody is there to answer.
        """
        self.desk.check()
        thread = self._started()
        try:
            self.desk.inbox.put(message)
            while True:
                try:
                    return message.news.get(timeout=PATIENCE)
                except Empty:
                    if not thread.is_alive():
                        self.desk.check()
                        raise RequestError("llm", "its engine's thread has ended") from None
        finally:
            message.gone = True

    def close(self) -> None:
        """Cancel everything, end the thread and let go of the engine; again, it does nothing."""
        self._close()
        self._engine = None

    def _started(self) -> threading.Thread:
        """The thread, started if it was not."""
        with self._starting:
            if self._thread is None:
                thread = _thread_of(self.desk)
                self._close.detach()
                self._close = weakref.finalize(self, _close, self.desk, thread)
                self._thread = thread
            return self._thread


def _thread_of(desk: Desk) -> threading.Thread:
    """Start the thread that serves a desk.

    Asleep, it must not keep the process alive; ``_close`` ends it before that does.

    Raises:
        OutriderError: the system has no thread left; a later call may have one.
    """
    thread = threading.Thread(target=_serve, args=(desk,), name="outrider-engine", daemon=True)
    before = threading.stack_size()
    small = 0 < before < LEAST_STACK
    try:
        if small:
            threading.stack_size(LEAST_STACK)
        thread.start()
    except RuntimeError as error:
        raise OutriderError(f"the engine's thread cannot be started: {error}") from None
    finally:
        if small:
            threading.stack_size(before)
    return thread


def _ended(entries: Sequence[Entry]) -> int:
    return sum(entry.ended for entry in entries)


def _more_ended(entries: Sequence[Entry], known: int) -> bool:
    return _ended(entries) > known


def _abandon(desk: Desk, entry: Entry) -> None:
    """Cancel a request whose ticket is gone. Runs in finalizers, so it waits for nothing.

    The owner sets the name and then looks whether the request was abandoned; here it is the other
    way round, so one of the two cancels it.
    """
    entry.abandoned = True
    engine = desk.engine()
    if engine is not None and entry.request_id is not None and not entry.ended:
        engine.cancel(entry.request_id)


def _close(desk: Desk, thread: threading.Thread | None) -> None:
    """End the thread after its round. Also runs when the owner is dropped or the process ends."""
    desk.closed = True
    desk.inbox.put(None)
    here = thread is threading.current_thread() or os.getpid() != desk.process
    if thread is not None and not here:
        thread.join()


# -- the owner's thread ----------------------------------------------------------------------------


def _serve(desk: Desk) -> None:
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
