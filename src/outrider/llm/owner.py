"""One thread that owns an engine, and serves whoever calls.

Callers hand messages in and wait for an answer; the owner's thread alone runs rounds, for all of
them together. So calls from any number of threads share batches, and an interrupt, which Python
raises in the main thread, ends a wait there and never a round.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty
from typing import Final

from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.llm.desk import Desk, Entry, Message
from outrider.llm.serving import serve
from outrider.types.errors import NumericsError, OutriderError, RequestError
from outrider.types.output import RequestOutput

#: Bytes of stack that a round needs at least, native code included; Python's own default is more.
LEAST_STACK: Final = 1 << 20
#: Seconds after which a caller looks whether the owner is still there.
PATIENCE: Final = 1.0


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

        while not come():
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
        while not entry.ended:
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
        self._close = weakref.finalize(self, _close, self.desk)

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
        if self.desk.thread is None:
            _start(self.desk)
        try:
            self.desk.inbox.put(message)
            while not self._came(message):
                pass
        finally:
            message.gone = True

    def _came(self, message: Message) -> bool:
        """Wait a while for the answer; should the owner be gone or have lost it, see for oneself.

        Raises:
            OutriderError: nobody is there to answer.
        """
        try:
            message.news.get(timeout=PATIENCE)
        except Empty:
            thread = self.desk.thread
            if message.answered():
                return True
            if thread is None:
                _start(self.desk)
            elif not thread.is_alive():
                self.desk.check()
                raise RequestError("llm", "its engine's thread has ended") from None
            return False
        return True

    def close(self) -> None:
        """Cancel everything, end the thread and let go of the engine; again, it does nothing."""
        self._close()
        self._engine = None


def _start(desk: Desk) -> None:
    """Start a thread that serves a desk; if another does by then, it ends at once.

    Asleep, it must not keep the process alive; ``_close`` ends it before that does.

    Raises:
        OutriderError: the system has no thread left; a later call may have one.
    """
    thread = threading.Thread(target=serve, args=(desk,), name="outrider-engine", daemon=True)
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


def _close(desk: Desk) -> None:
    """End the thread after its round. Also runs when the owner is dropped or the process ends."""
    desk.closed = True
    desk.inbox.put(None)
    thread = desk.thread
    here = thread is threading.current_thread() or os.getpid() != desk.process
    if thread is not None and not here:
        thread.join()
