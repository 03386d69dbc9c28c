"""``outrider check``: prove on this machine that nothing but the request decides an answer."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.check.cases import (
    CONTEXT,
    LENGTHS,
    MAX_DRAFT_LENGTH,
    REPLAY,
    Case,
    Effort,
    Probe,
    drafted_cases,
    plain_cases,
    probes,
)
from outrider.cli.console import note, progress_bars, write, write_json
from outrider.cli.options import AsJson, TargetOptions, spread
from outrider.cli.table import short_names, write_table
from outrider.config.engine import EngineConfig
from outrider.types.output import CompletionOutput, RequestOutput
from outrider.types.progress import Progress
from outrider.types.telemetry import Telemetry

if TYPE_CHECKING:
    from outrider.drafters.base import Drafter
    from outrider.engine import Engine, Request
    from outrider.models.target import Target


@dataclass
class CaseResult:
    """What one case showed.

    Attributes:
        case: its circumstances.
        differences: one line per request that differs from plain decoding.
        speculation: what drafting did, over all its requests.
    """

    case: Case
    differences: list[str] = field(default_factory=list)
    speculation: Telemetry = field(default_factory=Telemetry)

    @property
    def requests(self) -> int:
        """How many requests were compared."""
        return len(self.case.probes)

    @property
    def byte_equal(self) -> int:
        """How many of them were equal."""
        return self.requests - len(self.differences)


def serve(engine: Engine, requests: Sequence[Request], gap: int) -> list[RequestOutput]:
    """Run requests to their end; one arrives every ``gap`` rounds, or, if 0, after the last."""
    waiting = deque(requests)
    ids: list[str] = []
    rounds = 0
    while waiting or engine.has_unfinished:
        idle = not engine.has_unfinished
        if waiting and (idle or (gap and rounds % gap == 0)):
            ids.append(engine.add(waiting.popleft()))
        engine.step()
        rounds += 1
    engine.audit()
    return [engine.take(request_id) for request_id in ids]


def difference(found: CompletionOutput, plain: CompletionOutput) -> str | None:
    """Say where two completions differ first, or None: tokens, text, ending, log-probabilities."""
    pairs = zip(found.token_ids, plain.token_ids, strict=False)
    for index, (token, expected) in enumerate(pairs):
        if token != expected:
            return f"token {index} is {token}, plain decoding has {expected}"
    if len(found.token_ids) != len(plain.token_ids):
        return f"{len(found.token_ids)} tokens, plain decoding has {len(plain.token_ids)}"
    if found.text.encode() != plain.text.encode():
        return f"text is {found.text!r}, plain decoding has {plain.text!r}"
    ending = (found.finish_reason, found.stop_reason)
    if ending != (plain.finish_reason, plain.stop_reason):
        return f"ended by {ending}, plain decoding by {(plain.finish_reason, plain.stop_reason)}"
    if found.logprobs != plain.logprobs:
        return "log-probabilities differ"
    return None


class Audit:
    """The requests, their plain outputs, and the drafters that must reproduce them."""

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter],
        requests: Sequence[Probe],
        config: EngineConfig,
    ) -> None:
        self._target = target
        self._drafters = dict(drafters)
        self._probes = requests
        self._config = config
        self._plain: list[RequestOutput] = []

    def _request(self, probe: Probe) -> Request:
        from outrider.engine import Request

        tokenizer = self._target.tokenizer
        if probe.raw:
            ids = tokenizer.encode(probe.prompt, add_special=True)
        else:
            ids = tokenizer.encode_chat([{"role": "user", "content": probe.prompt}])
        return Request(ids, probe.params, probe.prompt)

    def run_plain(self, progress: Progress) -> None:
        """Decode every request alone and without a drafter: what all others must equal."""
        from outrider.cli.check.replay import ReplayDrafter
        from outrider.engine import Engine

        engine = Engine(self._target, None, self._config)
        for done, probe in enumerate(self._probes, 1):
            self._plain += serve(engine, [self._request(probe)], 0)
            progress("Plain decoding", done, len(self._probes))
        streams = [o.prompt_token_ids + o.outputs[0].token_ids for o in self._plain]
        self._drafters[REPLAY] = ReplayDrafter(streams, self._target.config.vocab_size)

    def run(self, case: Case) -> CaseResult:
        """Serve one case and compare."""
        from outrider.engine import Engine

        config = replace(
            self._config,
            draft_length=case.draft_length,
            max_num_batched_tokens=case.chunk,
        )
        engine = Engine(self._target, self._drafters.get(case.drafter), config)
        result = CaseResult(case)
        outputs = serve(engine, [self._request(self._probes[i]) for i in case.probes], case.gap)
        # An engine and its parts refer to each other; freed now, its pages serve the next one.
        del engine
        gc.collect()
        for index, output in zip(case.probes, outputs, strict=True):
            result.speculation.add(output.metrics.speculation)
            fault = difference(output.outputs[0], self._plain[index].outputs[0])
            if fault is not None:
                result.differences.append(f"{case.name}: {self._probes[index].name}: {fault}")
        return result


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


def _warn(results: Sequence[CaseResult], drafters: Sequence[str]) -> None:
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
        drafters = _make_drafters(drafter or ["auto"], loaded, config, progress)
        audit = Audit(loaded, drafters, requests, config)
        audit.run_plain(progress)
        cases = plain_cases(len(requests))
        cases += drafted_cases(REPLAY, MAX_DRAFT_LENGTH, len(requests), effort)
        for name, made in drafters.items():
            cases += drafted_cases(name, made.max_draft, len(requests), effort)
        total = sum(len(case.probes) for case in cases)
        results: list[CaseResult] = []
        for case in cases:
            results.append(audit.run(case))
            progress("Comparing", sum(result.requests for result in results), total)
    _finish(results, list(drafters), json)


def _make_drafters(
    specs: Sequence[str], target: Target, config: EngineConfig, progress: Progress
) -> dict[str, Drafter]:
    """Make each drafter once, under the name that its cases carry."""
    from outrider.assembly.drafter import find_drafter
    from outrider.engine.budget import cache_budget

    made: dict[str, Drafter] = {}
    for spec in specs:
        choice = find_drafter(spec, target, progress)
        budget = cache_budget(target, config, choice.page_nbytes(target))
        drafter = choice.load(target.reaching(budget.max_model_len), budget.pages)
        if drafter is not None:
            made[drafter.name if spec == "auto" else spec] = drafter
    return made


def _finish(results: Sequence[CaseResult], drafters: Sequence[str], json: bool) -> None:
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
