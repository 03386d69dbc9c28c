"""Rotary embedding parameters from a Hugging Face configuration, in the old and new spelling."""

from __future__ import annotations

import logging
from typing import Final, get_args

from outrider.config.rotary import RotaryConfig, RotaryKind
from outrider.config.sizes import MAX_POSITIONS
from outrider.loaders.fields import Fields

#: What a configuration can name; "divided" is for GGUF files alone.
KINDS: Final = tuple(kind for kind in get_args(RotaryKind) if kind != "divided")
DEFAULT_THETA: Final = 10000.0
_LOG: Final = logging.getLogger("outrider")
#: What some configurations call a parameter; the field's own name wins.
THETA: Final = "rope_theta"
THETA_ALIAS: Final = "rotary_emb_base"
PARTIAL: Final = "partial_rotary_factor"
PARTIAL_ALIASES: Final = ("rotary_pct", "rotary_emb_fraction")
LAYER_TYPES: Final = ("full_attention", "sliding_attention")


def _table(fields: Fields) -> Fields:
    """Return the object that holds the scaling parameters; it may be empty.

    A configuration with both spellings is read as transformers does: the old one wins, unless it
    is empty. One that lists parameters per layer type is accepted if they all agree.
    """
    old = fields.sub("rope_scaling")
    name = "rope_scaling" if old.names() else "rope_parameters"
    table = fields.sub(name)
    if old.names() and fields.has("rope_parameters") and old.differs(fields.sub("rope_parameters")):
        _LOG.warning(
            "%s: rope_scaling and rope_parameters differ; rope_scaling is used, as in transformers",
            fields.source,
        )
    nested = sorted(table.names() & set(LAYER_TYPES))
    if not nested:
        return table
    values = [table.value(kind) for kind in nested]
    if any(value != values[0] for value in values):
        raise fields.error(name, f"the same for {' and '.join(nested)}")
    return table.sub(nested[0])


def _refuse_partial(fields: Fields, table: Fields) -> None:
    """Refuse rotary embeddings of a part of the head."""
    for holder in (table, fields):
        for name in (PARTIAL, *PARTIAL_ALIASES):
            if holder.number(name, 1.0) != 1.0:
                raise holder.error(name, "1 (the whole head is rotated)")


def _theta(fields: Fields, table: Fields) -> float:
    """The base of the angles, inside the table or beside it, under either of its names."""
    named = {name: _either(fields, table, name) for name in (THETA, THETA_ALIAS)}
    theta, alias = named[THETA], named[THETA_ALIAS]
    if theta is None and alias is not None:
        _LOG.warning("%s: %s is taken as %s", fields.source, THETA_ALIAS, THETA)
        return alias
    if alias is not None and alias != theta:
        _LOG.warning("%s: %s and %s differ; %s is used", fields.source, THETA, THETA_ALIAS, THETA)
    return DEFAULT_THETA if theta is None else theta


def _either(fields: Fields, table: Fields, name: str) -> float | None:
    inside = table.number(name, None, above=1.0)
    return fields.number(name, None, above=1.0) if inside is None else inside


def read_rotary(fields: Fields, max_position: int) -> RotaryConfig:
    """Return the rotary parameters of a configuration.

    Args:
        fields: the configuration: ``rope_theta`` beside ``rope_scaling`` (old), or inside
            ``rope_parameters`` (new).
        max_position: the model's context length, which stands in for a missing
            ``original_max_position_embeddings``.

    Raises:
        ModelError: an unknown kind of scaling, or a missing or impossible parameter.
    """
    table = _table(fields)
    _refuse_partial(fields, table)
    theta = _theta(fields, table)
    kind = _kind(table)
    if kind == "default":
        return RotaryConfig(theta)
    factor = _factor(fields, table, kind, max_position)
    if kind == "linear":
        return RotaryConfig(theta, "linear", factor)
    original = _original(fields, table, max_position)
    if kind == "llama3":
        return _llama3(table, theta, factor, original)
    return RotaryConfig(
        theta,
        "yarn",
        factor,
        original,
        beta_fast=table.number("beta_fast", 32.0, above=0.0),
        beta_slow=table.number("beta_slow", 1.0, above=0.0),
        attention_factor=table.number("attention_factor", None, above=0.0),
        mscale=table.number("mscale", None),
        mscale_all_dim=table.number("mscale_all_dim", None),
        truncate=table.boolean("truncate", True),
    )


def _kind(table: Fields) -> str:
    """Which rule scales; of two spellings that differ the newer one wins, as in transformers."""
    spelling = "rope_type" if table.has("rope_type") else "type"
    kind = table.choice(spelling, KINDS, "default")
    old = table.string("type", kind)
    if old != kind:
        _LOG.warning(
            "%s: rotary scaling is %s by rope_type and %s by type; %s is used, as in transformers",
            table.source,
            kind,
            old,
            kind,
        )
    elif kind == "default" and table.has("factor"):
        _LOG.warning(
            "%s: rotary scaling has a factor but no rope_type; it is left out, as in transformers",
            table.source,
        )
    return kind


def _original(fields: Fields, table: Fields, max_position: int) -> int:
    """Trained context length. A value beside the table wins over one inside it."""
    name = "original_max_position_embeddings"
    outside = fields.integer(name, None, low=1, high=MAX_POSITIONS)
    if outside is not None:
        return outside
    return table.integer(name, max_position, low=1, high=MAX_POSITIONS)


def _factor(fields: Fields, table: Fields, kind: str, max_position: int) -> float:
    """Context extension factor; yarn derives a missing one from the two context lengths."""
    if kind == "yarn" and not table.has("factor"):
        return max_position / _original(fields, table, max_position)
    factor = table.number("factor")
    if factor < 1.0:
        raise table.error("factor", "a number of at least 1")
    return factor


def _llama3(table: Fields, theta: float, factor: float, original: int) -> RotaryConfig:
    low = table.number("low_freq_factor", above=0.0)
    high = table.number("high_freq_factor", above=0.0)
    if high <= low:
        raise table.error("high_freq_factor", f"greater than low_freq_factor {low:g}")
    return RotaryConfig(
        theta, "llama3", factor, original, low_freq_factor=low, high_freq_factor=high
    )
