"""Running tiny engines to their end."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.assembly.engine import assemble_with
from outrider.config.engine import EngineConfig
from outrider.draft_length.cost_curve import CostCurve
from outrider.draft_length.goodput import Goodput
from outrider.drafters.base import Drafter
from outrider.engine import Engine, Request
from outrider.models.target import Target
from outrider.types.clock import SYSTEM_CLOCK, Clock
from outrider.types.output import RequestOutput
from outrider.types.sampling import SamplingParams


class ListPrices(Goodput):
    """Prices that no clock changes: what is drafted depends on the tokens alone."""

    def __init__(self, profile: Sequence[tuple[int, float]], draft_seconds: float) -> None:
        super().__init__(CostCurve(profile), draft_seconds)

    def observe(
        self, rows: int, sessions: int, draft_seconds: float | None, seconds: float
    ) -> None:
        self.sessions = sessions


def make_engine(
    target: Target,
    drafter: Drafter | None,
    config: EngineConfig | None = None,
    goodput: Goodput | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Engine:
    """An engine whose caches are divided as everywhere, with prices of one's own if need be."""
    parts = assemble_with(target, drafter, config or EngineConfig(max_num_seqs=8))
    return Engine(parts.target, parts.drafter, parts.config, parts.budget, goodput, clock)


def serve(
    target: Target,
    drafter: Drafter | None,
    requests: Sequence[tuple[Sequence[int], SamplingParams]],
    *,
    gap: int = 0,
    config: EngineConfig | None = None,
    goodput: Goodput | None = None,
) -> list[RequestOutput]:
    """Serve all requests, a new one every ``gap`` rounds, auditing after every round."""
    engine = make_engine(target, drafter, config, goodput)
    waiting = [Request(prompt, params) for prompt, params in requests]
    ids: list[str] = []
    rounds = 0
    while waiting or engine.has_unfinished:
        while waiting and (not gap or rounds >= gap * len(ids)):
            ids.append(engine.add(waiting.pop(0)))
        engine.step()
        engine.audit()
        rounds += 1
        assert rounds < 5000, "the engine does not come to an end"
    outputs = [engine.take(request_id) for request_id in ids]
    engine.audit()
    return outputs


def alone(
    target: Target,
    requests: Sequence[tuple[Sequence[int], SamplingParams]],
    config: EngineConfig | None = None,
) -> list[RequestOutput]:
    """Plain decoding, one request at a time: the meaning of every answer."""
    return [serve(target, None, [request], config=config)[0] for request in requests]


def views(outputs: Sequence[RequestOutput]) -> list[list[tuple[object, ...]]]:
    """Everything a user can see of each completion, to compare exactly."""
    return [
        [
            (o.token_ids, o.text, o.finish_reason, o.stop_reason, o.logprobs, o.seed)
            for o in output.outputs
        ]
        for output in outputs
    ]


def truth(outputs: Sequence[RequestOutput]) -> list[list[int]]:
    """Whole streams, prompts included, for oracles."""
    return [[*o.prompt_token_ids, *c.token_ids] for o in outputs for c in o.outputs]
