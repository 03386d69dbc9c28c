"""``outrider generate``: one prompt, one answer or several."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.answer import as_json, cut, report
from outrider.cli.console import note, summary, write, write_json
from outrider.cli.message import check_text, read_message
from outrider.cli.options import AsJson, DraftOptions, SamplingOptions, TargetOptions, spread
from outrider.types.errors import RequestError
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


@spread
def generate(
    *,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT",
            help='The user\'s message; "-" reads standard input. What is piped in follows it.',
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            help='A file that follows the prompt, or is it; "-" is standard input.',
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", "-s", help="The system message.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Feed the text without template.")] = False,
    n: Annotated[
        int, typer.Option("--n", help="Answers to the prompt; answer i draws with seed + i.")
    ] = 1,
    logprobs: Annotated[
        int | None,
        typer.Option(
            "--logprobs",
            help="With --json: each token's log-probability and so many of the likeliest.",
        ),
    ] = None,
    json: AsJson = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Say on standard error what took how long."),
    ] = False,
    target: TargetOptions,
    draft: DraftOptions,
    sampling: SamplingOptions,
) -> None:
    """Answer one prompt; the text streams as it is decided.

    The prompt is the argument, then an empty line and the text of --file or what is piped in. One
    that begins with a dash goes last, after "--".
    """
    if logprobs is not None and not json:
        raise RequestError("--logprobs", "are shown in JSON only; add --json")
    params = replace(sampling.params(), n=n, logprobs=logprobs)
    request = _request(read_message(prompt, file), system, raw)
    began = time.perf_counter()
    llm = draft.load(target)
    loading = time.perf_counter() - began
    output = _answer(llm, request, params, shown=not json)
    if json:
        write_json(as_json(output, llm.tokenizer))
    else:
        _remark(output, params)
    if verbose:
        note(report(output, loading, llm.kernels_name))
    elif sys.stderr.isatty() and not json:
        note(summary(output))


def _request(text: str, system: str | None, raw: bool) -> PromptInput:
    """Return what the model is fed.

    Raises:
        RequestError: there is nothing to answer, or no place for the system message.
    """
    if raw:
        if system is not None:
            raise RequestError("--system", "has no place in a prompt without template; drop --raw")
        return text
    if not text.strip():
        raise RequestError("prompt", "is empty; write what the model should answer")
    if system is None:
        return [{"role": "user", "content": text}]
    check_text("--system", system)
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def _answer(
    llm: LLM, request: PromptInput, params: SamplingParams, *, shown: bool
) -> RequestOutput:
    """Answer, and show the text as it comes; several answers come one after another at the end."""
    if params.n == 1:
        outputs: list[RequestOutput] = []
        for piece in pieces(llm, request, params, outputs):
            if shown:
                write(piece)
        if shown:
            write("\n")
        return outputs[0]
    if isinstance(request, str):
        output = llm.generate(request, params)[0]
    else:
        output = llm.chat(request, params)[0]
    if shown:
        for completion in output.outputs:
            gap = "\n" if completion.index else ""
            write(f"{gap}--- {completion.index + 1} of {params.n} ---\n{completion.text}\n")
    return output


def _remark(output: RequestOutput, params: SamplingParams) -> None:
    """Say which answers a limit cut, and which option lets them go on."""
    remark = cut(output, params)
    if remark is not None:
        note(remark)
