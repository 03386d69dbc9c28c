"""Drafters that behave as badly as a drafter can."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from outrider.drafters.base import (
    CommittedRows,
    Drafter,
    DrafterFault,
    DraftRequest,
    DraftSampling,
    DraftState,
    Proposal,
    Tail,
)


class SpyState(DraftState):
    """Remembers the committed tokens, and checks that they arrive in order without holes."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.released = False

    @property
    def length(self) -> int:
        return len(self.tokens)

    def truncate(self, length: int) -> None:
        del self.tokens[length:]

    def fork(self, sampling: DraftSampling | None = None) -> SpyState:
        twin = SpyState()
        twin.tokens = list(self.tokens)
        return twin

    def release(self) -> None:
        self.released = True


Guesser = Callable[[list[int], int], object]


class Scripted(Drafter):
    """Proposes what a function of the known tokens says."""

    max_draft = 15

    def __init__(self, name: str, guess: Guesser, taps: tuple[int, ...] = ()) -> None:
        self.name = name
        self.taps = taps
        self.guess = guess
        self.tap_shapes: list[tuple[int, ...]] = []

    def begin(self, sampling: DraftSampling) -> SpyState:
        return SpyState()

    def observe(self, states: Sequence[DraftState], rows: Sequence[CommittedRows]) -> None:
        for state, row in zip(states, rows, strict=True):
            assert isinstance(state, SpyState)
            assert row.start == state.length
            if self.taps:
                assert row.taps is not None
                self.tap_shapes.append(tuple(row.taps.shape))
            state.tokens.extend(row.tokens)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal | DrafterFault]:
        answers: list[Proposal | DrafterFault] = []
        for request in requests:
            assert isinstance(request.state, SpyState)
            length = request.computed
            guessed = self.guess([*request.state.tokens, request.tip], length) if length else []
            if isinstance(guessed, Proposal | DrafterFault):
                answers.append(guessed)
            else:
                answers.append(Proposal(guessed))  # type: ignore[arg-type]
        return answers

    def export_tail(self, state: DraftState, upto: int) -> Tail | None:
        return None

    def restore(self, tail: Tail, sampling: DraftSampling) -> DraftState | None:
        return None


def oracle(truth: Sequence[Sequence[int]]) -> Guesser:
    """Knows the continuation of every known prefix: always right."""

    def guess(known: list[int], length: int) -> list[int]:
        for line in truth:
            if list(line[: len(known)]) == known:
                return list(line[len(known) : len(known) + length])
        return []

    return guess


def adversaries(truth: Sequence[Sequence[int]], vocab_size: int) -> dict[str, Scripted]:
    """One of each kind. ``truth`` holds whole streams (prompt and output) of plain decoding."""
    chance = random.Random(5)
    right = oracle(truth)

    def wrong(known: list[int], length: int) -> list[int]:
        line = right(known, length)
        return [(token + 1) % vocab_size for token in line] or [1] * length

    def half(known: list[int], length: int) -> list[int]:
        line = right(known, length)
        middle = len(line) // 2
        return line[:middle] + [(token + 1) % vocab_size for token in line[middle:]]

    def crash(known: list[int], length: int) -> list[int]:
        if chance.random() < 0.5:
            raise RuntimeError("planted crash")
        return right(known, length)

    def nonsense(known: list[int], length: int) -> object:
        return chance.choice(
            [
                [vocab_size + 3],
                [-1],
                Proposal([1], torch.full((1, vocab_size), float("nan"))),
                Proposal([1, 2], torch.zeros(1, vocab_size)),
                DrafterFault("planted fault"),
                Proposal(["x"]),  # type: ignore[list-item]
                None,
                right(known, length + 9),
            ]
        )

    kinds: dict[str, Guesser] = {
        "random": lambda known, length: [chance.randrange(vocab_size) for _ in range(length)],
        "wrong": wrong,
        "right": right,
        "half": half,
        "repeating": lambda known, length: [known[-1]] * length,
        "crashing": crash,
        "nonsense": nonsense,
        "silent": lambda known, length: [],
    }
    return {name: Scripted(name, guess) for name, guess in kinds.items()}
