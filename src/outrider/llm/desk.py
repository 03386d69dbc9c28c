"""What callers of an engine and its owner's thread share: requests and messages about them.

Nothing is locked: there are two kinds of queue, and fields that the thread alone writes. An
interrupt between any two instructions of a caller leaves nothing held.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final

from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.types.errors import OutriderError, RequestError
from outrider.types.output import RequestOutput

#: Rounds that a stream may run ahead of its reader, so that reading and computing overlap.
AHEAD: Final = 1


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
    def concerned(self) -> list[Entry]:
        """The requests that taking it in changes."""
        return [*self.arriving, *([] if self.closing is None else [self.closing])]

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
        thread: the one that serves it, once one does.
        fault: why the thread ended without being asked to.
    """

    engine: weakref.ref[Engine]
    inbox: SimpleQueue[Message | None] = field(default_factory=SimpleQueue)
    entries: list[Entry] = field(default_factory=list)
    waiting: list[Message] = field(default_factory=list)
    closed: bool = False
    process: int = field(default_factory=os.getpid)
    thread: threading.Thread | None = None
    fault: BaseException | None = None
    _seat: SimpleQueue[None] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self._seat.put(None)

    def claim(self) -> bool:
        """Make the current thread the one that serves this desk; False if there is one.

        An interrupt of a start can leave a thread behind that nobody knows of, so that another is
        started: however many are, one gets the seat.
        """
        try:
            self._seat.get_nowait()
        except Empty:
            return False
        self.thread = threading.current_thread()
        return True

    @property
    def wants_rounds(self) -> bool:
        """Whether a round should run."""
        return any(message.wants_rounds for message in self.waiting) or any(
            entry.read_ahead for entry in self.entries
        )

    def check(self) -> None:
        """Refuse calls that nobody would answer.

        Raises:
            OutriderError: it is closed, its thread failed, or this is a forked child of its
                process.
        """
        if self.fault is not None:
            raise OutriderError(
                f"the engine's thread has failed ({self.fault!r}); make a new LLM"
            ) from self.fault
        if self.closed:
            raise RequestError("llm", "has been closed; make a new LLM")
        if os.getpid() != self.process:
            raise OutriderError(
                "this LLM was made before the process was forked, and its threads stayed behind: "
                "make one in the child, or start the child with the spawn method"
            )
