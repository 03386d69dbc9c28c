"""How the modules that are run by themselves tell a user of a fault."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from outrider.types.errors import OutriderError


@contextmanager
def faults_in_one_line() -> Iterator[None]:
    """End the process with one line and status 2 if the user asked for what cannot be done.

    Ctrl-C ends it with status 130 and without a word.
    """
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except OutriderError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        sys.exit(2)
