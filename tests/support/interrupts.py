"""Raising at a chosen line of the engine's code, as an interrupt or an exhausted memory would."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any

PACKAGE = "/outrider/"


class Interrupter:
    """While entered: raises once, at the ``place``-th line that runs under ``function``.

    Attributes:
        lines: lines counted so far.
        fired: whether it has raised.
    """

    def __init__(self, function: str, place: int, error: type[BaseException]) -> None:
        self.lines = 0
        self.fired = False
        self._function = function
        self._place = place
        self._error = error
        self._inside = 0

    def __enter__(self) -> Interrupter:
        sys.settrace(self._enter_frame)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.settrace(None)

    def _enter_frame(self, frame: FrameType, event: str, arg: Any) -> Any:
        if PACKAGE not in frame.f_code.co_filename:
            return None
        if frame.f_code.co_name == self._function:
            self._inside += 1
        return self._in_frame

    def _in_frame(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return" and frame.f_code.co_name == self._function:
            self._inside -= 1
        if event == "line" and self._inside and not self.fired:
            self.lines += 1
            if self.lines == self._place:
                self.fired = True
                raise self._error(f"planted at {frame.f_code.co_qualname}:{frame.f_lineno}")
        return self._in_frame
