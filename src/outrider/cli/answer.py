"""What is told about a finished answer: its JSON form, where it was cut, what took how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outrider.text.pieces import REPLACEMENT
from outrider.types.output import CompletionOutput, RequestOutput, TokenLogprob
from outrider.types.sampling import SamplingParams

if TYPE_CHECKING:
    from outrider.text.tokenizer import Tokenizer


def as_json(output: RequestOutput, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the JSON form of a finished request.

    The fields of a completion are those of the first one; "outputs" lists all if there are several.
    """
    tokens = _tokens(output)
    timings, speculation = output.metrics.timings, output.metrics.speculation
    value = _completion(output.outputs[0], tokenizer, output.prompt_token_ids)
    value |= {
        "prompt_tokens": len(output.prompt_token_ids),
        "timings": {
            "prefill_s": timings.prefill_s,
            "decode_s": timings.decode_s,
            "tokens_per_s": timings.tokens_per_s(tokens),
        },
        "speculation": {
            "drafter": output.metrics.drafter,
            "rounds": speculation.rounds,
            "drafted": speculation.drafted,
            "accepted": speculation.accepted,
            "acceptance_length": speculation.acceptance_length,
            "accepted_per_position": speculation.accepted_per_position,
        },
    }
    if len(output.outputs) > 1:
        value["outputs"] = [
            {"index": one.index} | _completion(one, tokenizer, output.prompt_token_ids)
            for one in output.outputs
        ]
    return value


def _tokens(output: RequestOutput) -> int:
    return sum(len(completion.token_ids) for completion in output.outputs)


def _completion(
    completion: CompletionOutput, tokenizer: Tokenizer, prompt: Sequence[int]
) -> dict[str, Any]:
    value: dict[str, Any] = {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "completion_tokens": len(completion.token_ids),
        "seed": completion.seed,
    }
    if completion.logprobs is not None:
        entries = [_logprob(one, tokenizer, prompt) for one in completion.logprobs]
        value["logprobs"] = {"content": entries}
    return value


def _logprob(entry: TokenLogprob, tokenizer: Tokenizer, prompt: Sequence[int]) -> dict[str, Any]:
    """One token in the shape of chat completions, with its id and its rank."""

    def shown(token_id: int, logprob: float) -> dict[str, Any]:
        text = tokenizer.token_text(token_id, prompt)
        # A part of a character has no text of its own to give the bytes of.
        whole = None if REPLACEMENT in text else list(text.encode())
        return {"token": text, "token_id": token_id, "logprob": logprob, "bytes": whole}

    return {
        **shown(entry.token_id, entry.logprob),
        "rank": entry.rank,
        "top_logprobs": [shown(token, value) for token, value in entry.top],
    }


def cut(output: RequestOutput, params: SamplingParams) -> str | None:
    """Say that a limit ended an answer, and which option moves it; None if none was cut."""
    ended = [one for one in output.outputs if one.finish_reason == "length"]
    if not ended:
        return None
    many = len(output.outputs) > 1
    what = f"{len(ended)} of {len(output.outputs)} answers were" if many else "The answer was"
    longest = max(len(one.token_ids) for one in ended)
    if params.max_tokens is not None and longest >= params.max_tokens:
        return f"{what} cut at {longest} tokens; --max-tokens allows more."
    context = len(output.prompt_token_ids) + longest
    return f"{what} cut at the end of the context, {context} tokens; see --max-model-len."


def report(output: RequestOutput, loading: float, kernels: str) -> str:
    """Return what took how long, a line for each stage."""
    timings, speculation = output.metrics.timings, output.metrics.speculation
    prompt, tokens = len(output.prompt_token_ids), _tokens(output)
    fed = prompt / timings.prefill_s if timings.prefill_s else 0.0
    lines = [
        ("load", f"{loading:.2f} s, kernels {kernels}"),
        ("prefill", f"{timings.prefill_s:.3f} s, {prompt} tokens, {fed:.1f} tokens/s"),
        (
            "decode",
            f"{timings.decode_s:.3f} s, {tokens} tokens, "
            f"{timings.tokens_per_s(tokens):.1f} tokens/s",
        ),
        (
            "drafting",
            f"{output.metrics.drafter}, {speculation.accepted} of {speculation.drafted} draft "
            f"tokens accepted, {speculation.acceptance_length:.2f} tokens per round",
        ),
        ("seed", str(output.outputs[0].seed)),
    ]
    return "\n".join(f"{name:<9} {value}" for name, value in lines)
