"""Which requests an engine can serve."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.models.target import Target
from outrider.types.errors import RequestError
from outrider.types.sampling import SamplingParams


def check_request(
    target: Target, max_model_len: int, prompt: Sequence[int], params: SamplingParams
) -> None:
    """Check a request against the model that is to serve it.

    Args:
        target: the model.
        max_model_len: most tokens of a session, prompt and output.
        prompt: token ids.
        params: how to go on.

    Raises:
        RequestError: the prompt or a parameter cannot be served.
    """
    vocab_size = target.config.vocab_size
    if not prompt:
        raise RequestError("prompt", "must hold at least one token")
    outside = [token for token in prompt if not 0 <= token < vocab_size]
    if outside:
        raise RequestError(
            "prompt",
            f"token {_shown(target, outside[0])} is outside the vocabulary of {vocab_size}",
        )
    if max_model_len < 2:
        raise RequestError(
            "max_model_len",
            f"a context of {max_model_len} token has no room for a prompt and an answer; it must "
            "be at least 2",
        )
    if len(prompt) >= max_model_len:
        raise RequestError(
            "prompt",
            f"this model's maximum context length is {max_model_len} tokens, and the prompt "
            f"has {len(prompt)}; shorten it to at most {max_model_len - 1}",
        )
    params.check_vocabulary(vocab_size)
    ends = target.eos_ids | set(params.stop_ids)
    if params.min_tokens and len(ends) >= vocab_size:
        raise RequestError("min_tokens", "leaves no token to emit: every token ends the output")


def _shown(target: Target, token: int) -> str:
    """A token's id, and its text if the tokenizer has one: it may know more than the model."""
    tokenizer = target.tokenizer
    text = tokenizer.token(token) if 0 <= token < tokenizer.vocab_size else None
    return str(token) if text is None else f"{token} ({text!r})"
