"""The clock that everything is timed by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Returns seconds; they never run backwards, and only their differences mean anything.
Clock = Callable[[], float]

#: The machine's own, of the finest resolution that it has.
SYSTEM_CLOCK: Final[Clock] = time.perf_counter
