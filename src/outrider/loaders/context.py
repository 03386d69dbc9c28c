"""How long a context a configuration allows, as vLLM derives it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from outrider.config.rotary import RotaryConfig
from outrider.config.sizes import MAX_POSITIONS
from outrider.loaders.fields import Fields, read_json
from outrider.loaders.files import existing_file

SETTINGS: Final = "tokenizer_config.json"
#: Fields that bound a context besides max_position_embeddings; the smallest counts.
OTHER_BOUNDS: Final = (
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)


def read_context(folder: Path, fields: Fields, trained: int, rotary: RotaryConfig) -> int:
    """Return the longest context of a model in a Hugging Face folder.

    ``model_max_length`` of the configuration stands for the smallest of the other bounds; the one
    of the tokenizer's settings bounds it again; linear scaling multiplies what is left, and yarn
    starts anew from the length that it scales.

    Args:
        folder: where the tokenizer's settings are.
        fields: config.json, or its part about the text model.
        trained: its max_position_embeddings.
        rotary: its rotary parameters.

    Raises:
        ModelError: a bound is no integer of at least 1, or the scaled length is absurd.
    """
    bounds = [fields.integer(name, trained, low=1) for name in OTHER_BOUNDS]
    bound = fields.integer("model_max_length", min(trained, *bounds), low=1)
    path = folder / SETTINGS
    if existing_file(path):
        # Tokenizers without a limit have a number of about 1e30 here, at times as a float.
        bound = min(bound, int(read_json(path).number("model_max_length", bound, above=0.0)) or 1)
    return scaled(fields, bound, rotary)


def scaled(fields: Fields, trained: int, rotary: RotaryConfig) -> int:
    """Return the context length after rotary scaling.

    llama3 scaling is already counted in the length that models state.

    Raises:
        ModelError: it is absurd.
    """
    length: float = trained
    if rotary.kind == "linear":
        length = trained * rotary.factor
    elif rotary.kind == "yarn":
        length = rotary.original_max_position * rotary.factor
    if length > MAX_POSITIONS:
        raise fields.error(
            "max_position_embeddings",
            f"such that the scaled context has at most {MAX_POSITIONS} tokens; it has {length:.6g}",
        )
    return max(int(length), 1)
