"""The command itself: what is audited, and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.check.cases import (
    CONTEXT,
    LENGTHS,
    MAX_DRAFT_LENGTH,
    REPLAY,
    Effort,
    drafted_cases,
    plain_cases,
    probes,
)
from outrider.cli.console import note, progress_bars, write, write_json
from outrider.cli.options import AsJson, TargetOptions, spread
from outrider.cli.table import short_names, write_table
from outrider.config.engine import EngineConfig

if TYPE_CHECKING:
    from outrider.cli.check.audit import CaseResult


def as_json(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return the JSON form of an audit."""
    requests = sum(result.requests for result in results)
    equal = sum(result.byte_equal for result in results)
    return {
        "ok": requests == equal,
        "requests": requests,
        "byte_equal": equal,
        "cases": {
            result.case.name: {"requests": result.requests, "byte_equal": result.byte_equal}
            for result in results
        },
    }


def _report(results: Sequence[CaseResult]) -> None:
    names = short_names(result.case.drafter for result in results)
    write_table(
        "Compared with plain decoding, one request at a time",
        ("case", "requests", "equal", "drafted", "accepted", "faults"),
        [
            (
                names[result.case.drafter] + result.case.name.removeprefix(result.case.drafter),
                str(result.requests),
                str(result.byte_equal),
                str(result.speculation.drafted),
                str(result.speculation.accepted),
                str(result.speculation.faults),
            )
            for result in results
        ],
    )


def _warn(results: Sequence[CaseResult], drafters: Collection[str]) -> None:
    """Point out drafters that failed, or proved little because nothing was accepted."""
    for drafter in drafters:
        mine = [r.speculation for r in results if r.case.drafter == drafter]
        if any(speculation.faults for speculation in mine):
            note(f"{drafter}: failed in some rounds, which went on without it")
        if not any(speculation.accepted for speculation in mine):
            note(f"{drafter}: none of its draft tokens was accepted, so it was hardly tested")


@spread
def check(
    target: TargetOptions,
    drafter: Annotated[
        list[str] | None,
        typer.Option("--drafter", "-d", help="Drafter to audit; may be repeated."),
    ] = None,
    effort: Annotated[
        Effort, typer.Option("--effort", help="How many requests and tokens.")
    ] = "normal",
    json: AsJson = False,
) -> None:
    """Prove on this machine that drafting changes no byte.

    Greedy and sampled requests run with every drafter asked for, draft lengths 1 to 15, alone and
    arriving one after another, with prompts fed in pieces of different size. Token ids, text, how
    the answer ended and every log-probability must equal those of the same request decoded alone
    without a drafter; otherwise the exit status is 1. "replay" is a drafter of the audit's own: it
    knows the answers and errs at planted places, so that every acceptance length occurs.
    """
    from outrider.cli.check.audit import Audit, few_to_collect

    requests = probes(LENGTHS[effort])
    with progress_bars() as progress:
        loaded = target.load_target(progress)
        length = min(target.max_model_len or CONTEXT, CONTEXT, loaded.max_model_len)
        config = EngineConfig(
            max_model_len=length,
            max_num_seqs=len(requests),
            kv_cache_memory_bytes=target.cache_bytes(),
            kv_cache_dtype=target.kv_cache_dtype,
        )
        audit = Audit(loaded, drafter or ["auto"], requests, config, progress)
        audit.run_plain(progress)
        cases = plain_cases(len(requests))
        cases += drafted_cases(REPLAY, MAX_DRAFT_LENGTH, len(requests), effort)
        for name, max_draft in audit.max_draft.items():
            cases += drafted_cases(name, max_draft, len(requests), effort)
        total = sum(len(case.probes) for case in cases)
        results: list[CaseResult] = []
        with few_to_collect():
            for case in cases:
                results.append(audit.run(case))
                progress("Comparing", sum(result.requests for result in results), total)
    _finish(results, audit.max_draft, json)


def _finish(results: Sequence[CaseResult], drafters: Collection[str], json: bool) -> None:
    """Print the verdict; exit 1 if anything differs."""
    verdict = as_json(results)
    if json:
        write_json(verdict)
    else:
        _report(results)
        write(f"{verdict['byte_equal']} of {verdict['requests']} requests equal\n")
    for result in results:
        for line in result.differences:
            note(line)
    _warn(results, drafters)
    if not verdict["ok"]:
        raise typer.Exit(1)
