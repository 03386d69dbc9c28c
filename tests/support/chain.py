"""A target that walks a given chain of tokens, so that outputs are known by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.weights import RawWeight, raw_float
from outrider.models.dense import DenseModel
from outrider.models.target import Target
from outrider.text.tokenizer import Tokenizer
from support.tiny import TINY, random_weight


def chain(tokens: Sequence[int]) -> dict[int, int]:
    """Each token to the one after it."""
    return dict(pairwise(tokens))


def chain_target(
    tokenizer: Tokenizer, follow: Mapping[int, int], max_model_len: int = 256
) -> Target:
    """A target whose greedy choice after token t is ``follow[t]``, or token 0.

    The embedding is one-hot, the layer adds nothing, and the head looks up what follows.
    """
    vocab = tokenizer.vocab_size
    config = replace(
        TINY,
        hidden_size=-(-vocab // 32) * 32,
        vocab_size=vocab,
        num_layers=1,
        windows=(None,),
        tied=False,
        eos_ids=tokenizer.eos_ids,
    )

    def weight(name: str, shape: tuple[int, ...]) -> RawWeight:
        values = torch.zeros(shape)
        if name == "model.embed_tokens.weight":
            values = torch.eye(*shape)
        elif name == "lm_head.weight":
            for token in range(vocab):
                values[follow.get(token, 0), token] = 4.0
        elif name.endswith("norm.weight"):
            values = torch.ones(shape)
        elif not name.endswith(("o_proj.weight", "down_proj.weight")):
            return random_weight(name, shape)
        return raw_float(name, values)

    model = DenseModel(config, ReferenceKernels(), weight, max_model_len)
    return Target("chain", "chain", model, tokenizer, max_model_len)
