"""Amounts of memory as people write them."""

from __future__ import annotations

import pytest

from outrider.types.errors import RequestError
from outrider.types.sizes import parse_bytes, show_bytes


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2GiB", 2 * 1024**3),
        ("512MiB", 512 * 1024**2),
        ("1.5G", 3 * 1024**3 // 2),
        ("2147483648", 2**31),
        ("1", 1),
        ("100B", 100),
        ("3K", 3072),
        ("3k", 3000),
        ("1g", 10**9),
        ("1G", 1024**3),
        ("1GB", 10**9),
        ("1gb", 10**9),
        ("1gib", 1024**3),
        ("0.5 TiB", 2**39),
        (" 2 MiB ", 2 * 1024**2),
        ("0.3KiB", 307),
    ],
)
def test_amounts(text: str, wanted: int) -> None:
    assert parse_bytes("--kv-cache-memory-bytes", text) == wanted


NONE = (
    *(
        "",
        " ",
        "0",
        "0GiB",
        "-1",
        "-2GiB",
        "+1",
        "GiB",
        "two",
        "1e9",
        "nan",
        "inf",
        "0x10",
        "1_000",
    ),
    *("1,5G", "1.G", ".5G", "0.5", "2 GiB x", "2GiBs", "2PiB", "9999999999T", "2\nG", "2Gib\0"),
    "\uff11G",  # a digit, but not one of ours
)


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(RequestError, match="--kv-cache-memory-bytes: must be bytes, such as 2GiB"):
        parse_bytes("--kv-cache-memory-bytes", text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (3 * 2**29, "1.5 GiB"),
        (2**41, "2 TiB"),
    ],
)
def test_amounts_in_messages(count: int, text: str) -> None:
    assert show_bytes(count) == text
