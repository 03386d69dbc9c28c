"""How cached keys and values are kept."""

from __future__ import annotations

from typing import Final, Literal, get_args

#: int8 has a float32 scale per token and head; the others are plain floats.
KvDtype = Literal["int8", "bfloat16", "float32"]
#: What a user may ask for.
KvCacheDtype = Literal["auto", "int8", "bfloat16", "float32"]

KV_CACHE_DTYPES: Final[tuple[str, ...]] = get_args(KvCacheDtype)


def kv_dtype(choice: KvCacheDtype, quantized: bool) -> KvDtype:
    """Return the format that ``choice`` means for a model.

    The rule of "auto" is the same for every implementation of the operators: 8 bits cost less than
    quantised weights have cost already, and a float checkpoint keeps 16.

    Args:
        choice: what was asked for.
        quantized: whether any of the model's matrices is stored in blocks of integers.
    """
    if choice == "auto":
        return "int8" if quantized else "bfloat16"
    return choice
