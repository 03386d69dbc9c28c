"""An audit: requests are decoded alone and plainly, then in every case, and compared."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from outrider.assembly.engine import assemble, assemble_with
from outrider.cli.check.cases import PLAIN, REPLAY, Case, Probe
from outrider.cli.check.replay import ReplayDrafter
from outrider.config.engine import EngineConfig
from outrider.engine import Engine, Request
from outrider.models.target import Target
from outrider.types.output import CompletionOutput, RequestOutput
from outrider.types.progress import Progress
from outrider.types.telemetry import Telemetry


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


@contextmanager
def few_to_collect() -> Iterator[None]:
    """Spare the garbage collector what is loaded by now, which every case would have it go through.

    It is most of the time of a small audit.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


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
    """The requests, their plain outputs, and the drafters that must reproduce them.

    Attributes:
        max_draft: most tokens that each drafter asked for can propose; those that draft nothing
            are not listed.
    """

    def __init__(
        self,
        target: Target,
        drafters: Sequence[str],
        requests: Sequence[Probe],
        config: EngineConfig,
        progress: Progress,
    ) -> None:
        """Load every drafter once.

        Args:
            target: the model.
            drafters: what ``--drafter`` takes.
            requests: what every case serves, or some of them.
            config: limits; a case sets the draft length and the rows of a pass.
            progress: told while a drafter downloads.

        Raises:
            OutriderError: a drafter cannot be loaded, or a limit cannot be kept.
        """
        self._target = target
        self._probes = requests
        self._config = config
        self._plain: list[RequestOutput] = []
        self._parts = {PLAIN: assemble_with(target, None, config)}
        self.max_draft: dict[str, int] = {}
        for spec in drafters:
            parts = assemble(target, spec, config, progress)
            if parts.drafter is not None:
                name = parts.drafter.name if spec == "auto" else spec
                self._parts[name] = parts
                self.max_draft[name] = parts.drafter.max_draft

    def _request(self, probe: Probe) -> Request:
        tokenizer = self._target.tokenizer
        if probe.raw or not tokenizer.has_template:
            ids = tokenizer.encode(probe.prompt, add_special=True)
        else:
            ids = tokenizer.encode_chat([{"role": "user", "content": probe.prompt}])
        return Request(ids, probe.params, probe.prompt)

    def run_plain(self, progress: Progress) -> None:
        """Decode every request alone and without a drafter: what all others must equal."""
        engine = self._parts[PLAIN].engine()
        for done, probe in enumerate(self._probes, 1):
            self._plain += serve(engine, [self._request(probe)], 0)
            progress("Plain decoding", done, len(self._probes))
        streams = [o.prompt_token_ids + o.outputs[0].token_ids for o in self._plain]
        replay = ReplayDrafter(streams, self._target.config.vocab_size)
        self._parts[REPLAY] = assemble_with(self._target, replay, self._config)

    def run(self, case: Case) -> CaseResult:
        """Serve one case and compare."""
        engine = self._engine(case)
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

    def _engine(self, case: Case) -> Engine:
        config = replace(
            self._config, draft_length=case.draft_length, max_num_batched_tokens=case.chunk
        )
        return replace(self._parts[case.drafter], config=config).engine()
