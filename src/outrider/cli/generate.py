"""``outrider generate``: one prompt, one answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.console import note, summary, write, write_json
from outrider.cli.options import AsJson, DraftOptions, SamplingOptions, TargetOptions, spread
from outrider.types.output import RequestOutput

if TYPE_CHECKING:
    from outrider.llm.llm import LLM
    from outrider.types.sampling import SamplingParams

PromptInput = str | list[dict[str, str]]


def pieces(
    llm: LLM, prompt: PromptInput, params: SamplingParams, outputs: list[RequestOutput]
) -> Iterator[str]:
    """Stream an answer; its final output is appended to ``outputs``.

    A string is a raw prompt, a list of messages is rendered by the chat template. Leaving the
    iteration early cancels the request.
    """
    with closing(llm.stream(prompt, params)) as stream:
        yield from stream
        if stream.output is None:
            raise RuntimeError("an exhausted stream has its output")
        outputs.append(stream.output)


def as_json(output: RequestOutput) -> dict[str, Any]:
    """Return the JSON form of a finished request with one completion."""
    completion = output.outputs[0]
    timings, speculation = output.metrics.timings, output.metrics.speculation
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": len(output.prompt_token_ids),
        "completion_tokens": len(completion.token_ids),
        "seed": completion.seed,
        "timings": {
            "prefill_s": timings.prefill_s,
            "decode_s": timings.decode_s,
            "tokens_per_s": timings.tokens_per_s(len(completion.token_ids)),
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


@spread
def generate(
    prompt: Annotated[str, typer.Argument(help='The user\'s message; "-" reads standard input.')],
    target: TargetOptions,
    draft: DraftOptions,
    sampling: SamplingOptions,
    raw: Annotated[bool, typer.Option("--raw", help="Feed the text without template.")] = False,
    json: AsJson = False,
) -> None:
    """Answer one prompt; the text streams as it is decided."""
    params = sampling.params()
    text = sys.stdin.read() if prompt == "-" else prompt
    llm = draft.load(target)
    request: PromptInput = text if raw else [{"role": "user", "content": text}]
    outputs: list[RequestOutput] = []
    for piece in pieces(llm, request, params, outputs):
        if not json:
            write(piece)
    if json:
        write_json(as_json(outputs[0]))
        return
    write("\n")
    if sys.stderr.isatty():
        note(summary(outputs[0]))
