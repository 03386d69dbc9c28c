"""What native code is given: C++ gets addresses and does not look."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.kernels.handles import PageStore, Stack
from outrider.kernels.rows import PAGE_TOKENS, RowGroup, Rows
from outrider.kernels.values import (
    Block,
    BlockDraftWeights,
    ContextWeights,
    MarkovWeights,
    StackWeights,
)


def floats(x: Tensor, *shape: int) -> Tensor:
    """``x`` itself if it is contiguous float32, else such a copy.

    Args:
        x: any float tensor in CPU memory.
        shape: the shape it must have; left out, any.

    Raises:
        TypeError: it holds no floats, or lies elsewhere.
        ValueError: it has another shape.
    """
    if not x.is_floating_point() or not _addressable(x):
        raise TypeError(f"floats in CPU memory are needed, not {x.dtype} on {x.device}")
    if shape and x.shape != shape:
        raise ValueError(f"a tensor of shape {list(shape)} is needed, not {list(x.shape)}")
    return x.to(torch.float32).contiguous()


def integers(x: Tensor) -> Tensor:
    """``x`` itself if it is contiguous int64, else such a copy; any integers in CPU memory.

    Raises:
        TypeError: it holds no integers, or lies elsewhere.
    """
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool or not _addressable(x):
        raise TypeError(f"integers in CPU memory are needed, not {x.dtype} on {x.device}")
    return x.to(torch.int64).contiguous()


def indices(x: Tensor, size: int, what: str) -> Tensor:
    """As ``integers``, of indices into ``size`` rows.

    Raises:
        IndexError: one of them is outside; ``what`` names them.
    """
    x = integers(x)
    if x.numel() and not 0 <= int(x.min()) <= int(x.max()) < size:
        raise IndexError(f"{what} must lie in 0 .. {size - 1}")
    return x


def _addressable(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.layout == torch.strided


def need(holds: bool, message: str) -> None:
    """Refuse shapes that do not fit each other.

    Raises:
        ValueError: ``holds`` is false.
    """
    if not holds:
        raise ValueError(message)


def check(rows: Rows, store: PageStore, positions: int | None = None) -> None:
    """Refuse rows outside the page tables, the store or the ``positions`` of a rotary table.

    Raises:
        IndexError: a row is outside.
    """
    for group in rows.groups:
        _check_pages(group, group.start + group.count, store)
        _check_angles(group, positions)


def check_block(rows: Rows, store: PageStore, positions: int | None = None) -> None:
    """As ``check``, for rows of which only the context before them is cached."""
    for group in rows.groups:
        _check_pages(group, group.start, store)
        _check_angles(group, positions)


def _check_pages(group: RowGroup, end: int, store: PageStore) -> None:
    if group.start < 0 or group.count < 0 or group.floor < 0:
        raise IndexError(f"rows {group.start} .. {end - 1} above {group.floor} do not exist")
    if len(group.pages) * PAGE_TOKENS < end:
        raise IndexError(f"{len(group.pages)} pages do not reach position {end - 1}")
    if group.pages and not 0 <= min(group.pages) <= max(group.pages) < store.pages:
        raise IndexError(f"page ids must lie in 0 .. {store.pages - 1}")


def _check_angles(group: RowGroup, positions: int | None) -> None:
    end = group.start + group.count
    if positions is not None and end > positions:
        raise IndexError(f"position {end - 1} is outside the rotary table")


def check_layer(layer: int, store: PageStore) -> None:
    """Refuse a layer that the store does not have.

    Raises:
        IndexError: the layer is outside.
    """
    if not 0 <= layer < store.layers:
        raise IndexError(f"layer {layer} of {store.layers}")


def check_queries(q: Tensor, rows: Rows, store: PageStore) -> Tensor:
    """Queries [n, h, d] of rows, as C++ reads them.

    Raises:
        TypeError: they are no floats in CPU memory.
        ValueError: their shape does not belong to the rows and the store.
    """
    need(
        q.ndim == 3 and q.shape[1] > 0 and q.shape[1] % store.kv_heads == 0,
        f"queries of shape {list(q.shape)} cannot share {store.kv_heads} key heads",
    )
    return floats(q, rows.count, q.shape[1], store.head_dim)


def check_stack(weights: StackWeights) -> None:
    """Refuse layers whose weights do not fit each other.

    Raises:
        ValueError: a weight has another shape than the stack's.
    """
    h, g, d = weights.num_heads, weights.num_kv_heads, weights.head_dim
    need(len(weights.layers) > 0 and g > 0 and h % g == 0 and d % 2 == 0, "no such heads or layers")
    hidden = weights.layers[0].qkv.in_features
    for layer in weights.layers:
        inner = layer.down.in_features
        shapes = (
            (layer.qkv, (h + 2 * g) * d, hidden),
            (layer.out, hidden, h * d),
            (layer.gate_up, 2 * inner, hidden),
            (layer.down, hidden, inner),
        )
        for matrix, outputs, inputs in shapes:
            found = (matrix.out_features, matrix.in_features)
            need(found == (outputs, inputs), f"a weight of {found}, not {(outputs, inputs)}")
    need(
        weights.rotary.cos.shape == weights.rotary.sin.shape
        and weights.rotary.cos.shape[1:] == (d // 2,),
        f"rotary tables of shape {list(weights.rotary.cos.shape)} for heads of {d}",
    )


def check_context(weights: ContextWeights) -> None:
    """Refuse projections that do not fit the layers whose rows they make.

    Raises:
        ValueError: their shapes differ from the stack's.
    """
    stack = weights.stack
    need(weights.fc.out_features == stack.hidden_size, "context of another width than the stack's")
    found = (weights.keys_values.out_features, weights.keys_values.in_features)
    shape = (context_width(stack), stack.hidden_size)
    need(found == shape, f"context weights of {found}, not {shape}")


def context_width(stack: Stack) -> int:
    """Keys and values of one context row, of all layers."""
    return 2 * stack.layers * stack.kv_heads * stack.head_dim


def check_markov(weights: MarkovWeights) -> None:
    """Refuse a bias whose two matrices do not fit each other.

    Raises:
        ValueError: their widths differ, or it chooses tokens that have no embedding.
    """
    tokens, out = weights.tokens, weights.out
    need(tokens.in_features == out.in_features, "the bias has embeddings of another width")
    embedded = weights.ids is not None or out.out_features <= tokens.out_features
    need(embedded, f"{out.out_features} tokens with {tokens.out_features} embeddings")


def check_draft_weights(weights: BlockDraftWeights) -> None:
    """Refuse a drafter's weights that do not fit each other.

    Raises:
        ValueError: a weight has another shape than the drafter's.
    """
    hidden, rows = weights.stack.hidden_size, len(weights.masks)
    need(0 <= weights.first < rows, f"row {weights.first} of {rows}")
    widths = (weights.embedding.in_features, weights.head.in_features)
    need(widths == (hidden, hidden), f"embedding and head of widths {widths}, not {hidden}")
    sizes = (weights.markov.out.out_features, weights.head.out_features)
    need(len(set(sizes)) == 1, f"bias and head of {sizes} tokens")


def check_cache(stack: Stack, store: PageStore) -> None:
    """Refuse a store that was allocated for another stack.

    Raises:
        ValueError: layers, heads or width differ.
    """
    theirs = (store.layers, store.kv_heads, store.head_dim)
    ours = (stack.layers, stack.kv_heads, stack.head_dim)
    need(theirs == ours, f"pages for layers, heads and width {theirs}, not {ours}")


def stream_of(x: Tensor, stack: Stack, rows: Rows) -> Tensor:
    """A copy of embedded rows, which becomes the residual stream.

    Raises:
        TypeError: they are no floats in CPU memory.
        ValueError: they have another shape than the rows and the stack.
    """
    ready = floats(x, rows.count, stack.hidden_size)
    return ready.clone() if ready is x else ready


def check_tips(blocks: Sequence[Block], vocab_size: int) -> None:
    """Refuse tips outside the embedding.

    Raises:
        IndexError: a tip is outside.
    """
    tips = [block.tip for block in blocks]
    if tips and not 0 <= min(tips) <= max(tips) < vocab_size:
        raise IndexError(f"token ids must lie in 0 .. {vocab_size - 1}")
