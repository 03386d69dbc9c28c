"""``outrider demo``: the promise on one screen. The same answer, plain and drafted."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.console import write
from outrider.cli.generate import pieces
from outrider.cli.message import check_text
from outrider.cli.options import TargetOptions, spread
from outrider.cli.table import write_table
from outrider.types.errors import RequestError
from outrider.types.output import RequestOutput
from outrider.types.sampling import SamplingParams

if TYPE_CHECKING:
    from outrider.llm.llm import LLM

PROMPT = "Write a Python class Stack with the methods push, pop, peek and is_empty."


def _answer(llm: LLM, prompt: str, params: SamplingParams) -> RequestOutput:
    """Stream one answer onto the screen."""
    write(f"\n--- drafter: {llm.drafter_name} ---\n")
    outputs: list[RequestOutput] = []
    for piece in pieces(llm, [{"role": "user", "content": prompt}], params, outputs):
        write(piece)
    write("\n")
    return outputs[0]


def _speed(output: RequestOutput) -> float:
    return output.metrics.timings.tokens_per_s(len(output.outputs[0].token_ids))


def _cells(output: RequestOutput, plain: RequestOutput) -> tuple[str, ...]:
    tokens = len(output.outputs[0].token_ids)
    speed, base = _speed(output), _speed(plain)
    text = output.outputs[0].text.encode()
    return (
        output.metrics.drafter,
        str(tokens),
        str(output.metrics.speculation.rounds),
        f"{output.metrics.speculation.acceptance_length:.2f}",
        f"{speed:.1f}",
        f"{speed / base:.2f}" if base else "-",
        hashlib.sha256(text).hexdigest()[:16],
    )


@spread
def demo(
    target: TargetOptions,
    drafter: Annotated[str, typer.Option("--drafter", "-d", help="Drafter to show.")] = "auto",
    prompt: Annotated[str, typer.Option("--prompt", help="The user's message.")] = PROMPT,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=2, help="Most tokens to write.")
    ] = 128,
    temperature: Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Of both answers, if not greedy.")] = 7,
) -> None:
    """Answer twice, plain and drafted; compare tokens, bytes and speed.

    The exit status is 1 if tokens or bytes differ. One answer says little about speed on a busy
    machine; "outrider bench" measures many.
    """
    check_text("--prompt", prompt)
    if drafter == "none":
        raise RequestError("--drafter", "plain decoding is shown anyway; leave it out")
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
    started = time.perf_counter()
    plain_llm = target.load("none", max_num_seqs=1)
    write(
        f"Loaded {target.model} in {time.perf_counter() - started:.1f} s, "
        f"kernels: {plain_llm.kernels_name}\n\n{prompt}\n"
    )
    drafted_llm = plain_llm.variant(drafter=drafter)
    for llm in (plain_llm, drafted_llm):
        llm.generate(prompt, SamplingParams(max_tokens=8, temperature=0.0))  # warms up, unmeasured
    plain, drafted = (_answer(llm, prompt, params) for llm in (plain_llm, drafted_llm))
    columns = ("drafter", "tokens", "rounds", "tokens/round", "tokens/s", "speedup", "text sha256")
    write("\n")
    write_table("Plain and drafted", columns, [_cells(o, plain) for o in (plain, drafted)])
    one, two = plain.outputs[0], drafted.outputs[0]
    if (one.token_ids, one.text.encode()) != (two.token_ids, two.text.encode()):
        write("The two answers DIFFER. That is a fault: please report it.\n")
        raise typer.Exit(1)
    write(
        f"Same answer, byte for byte: {len(one.token_ids)} tokens, {len(one.text.encode())} bytes."
        f"\nDrafted: {_speed(drafted):.1f} tokens/s, plain: {_speed(plain):.1f}.\n"
    )
