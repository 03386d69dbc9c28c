"""The plan of ``outrider check``: which requests run, and in which company.

Every case serves some of the requests in circumstances that must not matter. Its outputs are
compared with those of plain decoding, one request at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from outrider.types.sampling import SamplingParams

Effort = Literal["quick", "normal", "thorough"]

#: Tokens per request.
LENGTHS: Final[dict[Effort, int]] = {"quick": 12, "normal": 32, "thorough": 96}
#: Prompt tokens fed per round; the first splits every prompt, the last none.
CHUNKS: Final = (7, 33, 512)
MAX_DRAFT_LENGTH: Final = 15
#: Requests per case of a single draft length.
SAMPLE: Final[dict[Effort, int]] = {"quick": 1, "normal": 3, "thorough": 10}


@dataclass(frozen=True)
class Probe:
    """One request of the audit.

    Attributes:
        name: what differences are reported under.
        prompt: a user's message, or the raw text if ``raw``.
        params: its sampling parameters.
        raw: feed the prompt without the chat template.
    """

    name: str
    prompt: str
    params: SamplingParams
    raw: bool = False


@dataclass(frozen=True)
class Case:
    """Circumstances that must not change an output.

    Attributes:
        name: unique, the drafter's name first.
        drafter: which drafter runs.
        draft_length: tokens to draft per round; None takes the drafter's own.
        chunk: prompt tokens fed per round.
        gap: rounds between one arrival and the next; 0 serves requests one after another.
        probes: indices of the requests it serves.
    """

    name: str
    drafter: str
    draft_length: int | None
    chunk: int
    gap: int
    probes: tuple[int, ...]


_LIST: Final = (
    "Copy this list three times: red, green, blue, yellow, orange, violet, black, white, grey."
)
_CODE: Final = (
    "Add type hints and change nothing else:\n\ndef area(width, height):\n"
    "    result = width * height\n    return result"
)
_STORY: Final = (
    "The old clock in the hall struck nine. The cat opened one eye. The old clock in the hall "
    "struck ten. The cat"
)


def probes(tokens: int) -> list[Probe]:
    """Return the audit's requests, each of at most ``tokens`` tokens with log-probabilities."""

    def params(**values: object) -> SamplingParams:
        return SamplingParams(max_tokens=tokens, logprobs=1, **values)  # type: ignore[arg-type]

    greedy = {"temperature": 0.0}
    return [
        Probe("greedy question", "What is the capital of France?", params(**greedy)),
        Probe("sampled list", _LIST, params(temperature=0.8, seed=7)),
        Probe("greedy copy", _LIST, params(**greedy)),
        Probe(
            "filtered code",
            _CODE,
            params(temperature=1.0, top_k=40, top_p=0.9, min_p=0.02, seed=11),
        ),
        Probe(
            "greedy penalties",
            _STORY,
            params(**greedy, presence_penalty=0.4, frequency_penalty=0.3, repetition_penalty=1.1),
            raw=True,
        ),
        Probe("sampled story", _STORY, params(temperature=0.9, seed=2**40 + 1), raw=True),
        Probe("greedy code", _CODE, params(**greedy, ignore_eos=True)),
        Probe(
            "sampled bias",
            "Write the numbers from one to thirty in words.",
            params(
                temperature=0.7,
                seed=3,
                repetition_penalty=1.05,
                logit_bias={11: 2.0, 13: -4.0},
                min_tokens=tokens // 2,
            ),
        ),
        Probe(
            "greedy stop",
            "Count from 1 to 20, separated by commas.",
            params(**greedy, stop=["9", "15,"], include_stop_str_in_output=True),
        ),
        Probe(
            "sampled symbols",
            "Beispiel: ein Gruß, 日本語, 🙂🙂🙂, naïve façade. Beispiel: ein Gruß, 日本語, 🙂",
            params(temperature=1.2, seed=5),
            raw=True,
        ),
    ]


def plain_cases(count: int) -> list[Case]:
    """Cases without a drafter: company and chunks alone must change nothing either."""
    everyone = tuple(range(count))
    return [
        Case(f"none, batched, prefill by {chunk}", "none", None, chunk, gap, everyone)
        for chunk, gap in zip(CHUNKS, (1, 2, 3), strict=True)
    ]


def drafted_cases(drafter: str, count: int, effort: Effort) -> list[Case]:
    """Cases of one drafter: alone, batched, and every draft length; it drafts less if it must."""
    everyone = tuple(range(count))
    cases = [
        Case(f"{drafter}, alone", drafter, None, CHUNKS[-1], 0, everyone),
        Case(f"{drafter}, batched", drafter, None, CHUNKS[1], 2, everyone),
    ]
    size = min(SAMPLE[effort], count)
    for length in range(1, MAX_DRAFT_LENGTH + 1):
        chosen = tuple(sorted({(length * size + offset) % count for offset in range(size)}))
        chunk = CHUNKS[length % len(CHUNKS)]
        # Odd lengths run in company, even lengths alone; every probe meets both.
        gap = length % 2 * (1 + length % 3)
        name = f"{drafter}, draft length {length}"
        cases.append(Case(name, drafter, length, chunk, gap, chosen))
    return cases


def count_requests(cases: Sequence[Case]) -> int:
    """Return how many comparisons the cases make."""
    return sum(len(case.probes) for case in cases)
