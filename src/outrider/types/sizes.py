"""Amounts of memory, as people write and read them."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from outrider.types.errors import RequestError

#: What a unit multiplies by. A lone letter counts as in vLLM: capitals are powers of 1024.
UNITS: Final = {
    "": 1,
    "B": 1,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
}
#: Longer spellings, in which capitals do not matter.
SPELLED: Final = {unit.lower(): unit for unit in UNITS if len(unit) > 1 or unit == "B"}
AMOUNT: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?([A-Za-z]*)")
LARGEST: Final = 2**63 - 1


def parse_bytes(name: str, text: str) -> int:
    """Return how many bytes ``text`` says: "2GiB", "512MiB", "1.5G", "2000000000".

    K, M, G and T, alone or with "iB", are powers of 1024; with "B", and as lone small letters, of
    1000. A part of a byte is left out.

    Raises:
        RequestError: it is no amount of at least one byte.
    """
    match = AMOUNT.fullmatch(text.strip())
    if match is not None:
        amount, unit = match.groups()
        factor = UNITS.get(SPELLED.get(unit.lower(), unit))
        if factor is not None:
            found = int(Decimal(amount) * factor)
            if 1 <= found <= LARGEST:
                return found
    raise RequestError(name, f"must be bytes, such as 2GiB, 512MiB or 1.5G, not {text!r:.60}")


def show_bytes(count: int) -> str:
    """An amount for a message: "2 GiB", "1.5 MiB", "300 bytes"."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:.4g} {unit}"
    return f"{count} bytes"
