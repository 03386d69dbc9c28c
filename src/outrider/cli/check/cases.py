"""The plan of ``outrider check``: which requests run, and in which company.

Every case serves some of the requests in circumstances that must not matter. Its outputs are
compared with those of plain decoding, one request at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from outrider.types.sampling import SamplingParams

Effort = Literal["quick", "normal", "thorough"]

#: Tokens per request.
LENGTHS: Final[dict[Effort, int]] = {"quick": 12, "normal": 32, "thorough": 96}
#: Most tokens of a prompt and its answer, so that small machines can seat all requests at once.
CONTEXT: Final = 512
#: Rows of a pass; the first splits every prompt, the last none. The first has room for a whole
#: draft of one request, and for a row of every request in flight.
CHUNKS: Final = (17, 33, 512)
MAX_DRAFT_LENGTH: Final = 15
USUAL_DRAFT_LENGTH: Final = 7
#: Requests per case of a single draft length.
SAMPLE: Final[dict[Effort, int]] = {"quick": 1, "normal": 3, "thorough": 10}
#: Plain decoding, and the name of the audit's own drafter.
PLAIN: Final = "none"
REPLAY: Final = "replay"


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
        draft_length: tokens to draft per round; None lets the engine choose.
        chunk: most rows of a pass, of which prompts are fed with what decoding leaves.
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

_SYMBOLS: Final = "Beispiel: ein Gruß, 日本語, 🙂🙂🙂, naïve façade. Beispiel: ein Gruß, 日本語, 🙂"


def probes(tokens: int) -> list[Probe]:
    """Return the audit's requests, each of at most ``tokens`` tokens.

    Half of them ask for log-probabilities and so have their logits compared; the others take the
    short cuts that are open to requests that do not.
    """
    greedy = partial(SamplingParams, max_tokens=tokens, temperature=0.0)
    sampled = partial(SamplingParams, max_tokens=tokens)

    return [
        Probe("greedy question", "What is the capital of France?", greedy()),
        Probe("sampled list", _LIST, sampled(temperature=0.8, seed=7)),
        Probe("greedy copy", _LIST, greedy(logprobs=3)),
        Probe(
            "filtered code",
            _CODE,
            sampled(temperature=1.0, seed=11, top_k=40, top_p=0.9, min_p=0.02, logprobs=2),
        ),
        Probe(
            "greedy penalties",
            _STORY,
            greedy(presence_penalty=0.4, frequency_penalty=0.3, repetition_penalty=1.1, logprobs=1),
            raw=True,
        ),
        Probe(
            "sampled story", _STORY, sampled(temperature=0.9, seed=2**40 + 1, top_p=0.95), raw=True
        ),
        Probe("greedy code", _CODE, greedy(ignore_eos=True)),
        Probe(
            "sampled bias",
            "Write the numbers from one to thirty in words.",
            sampled(
                temperature=0.7,
                seed=3,
                repetition_penalty=1.05,
                logit_bias={11: 2.0, 13: -4.0},
                min_tokens=tokens // 2,
                logprobs=1,
            ),
        ),
        Probe(
            "greedy stop",
            "Count from 1 to 20, separated by commas.",
            greedy(stop=["9", "15,"], include_stop_str_in_output=True),
        ),
        Probe("sampled symbols", _SYMBOLS, sampled(temperature=1.2, seed=5, logprobs=1), raw=True),
    ]


def plain_cases(count: int) -> list[Case]:
    """Cases without a drafter: company and chunks alone must change nothing either."""
    everyone = tuple(range(count))
    return [
        Case(f"none, batched, passes of {chunk} rows", PLAIN, None, chunk, gap, everyone)
        for chunk, gap in zip(CHUNKS, (1, 2, 3), strict=True)
    ]


def drafted_cases(drafter: str, max_draft: int, count: int, effort: Effort) -> list[Case]:
    """Cases of one drafter: alone, batched, and every draft length up to ``max_draft``."""
    everyone = tuple(range(count))
    usual = min(USUAL_DRAFT_LENGTH, max_draft)
    cases = [
        Case(f"{drafter}, alone", drafter, usual, CHUNKS[-1], 0, everyone),
        Case(f"{drafter}, batched", drafter, usual, CHUNKS[1], 2, everyone),
        Case(f"{drafter}, batched, length by goodput", drafter, None, CHUNKS[0], 1, everyone),
    ]
    size = min(SAMPLE[effort], count)
    for length in range(1, min(MAX_DRAFT_LENGTH, max_draft) + 1):
        chosen = tuple(sorted({(length * size + offset) % count for offset in range(size)}))
        chunk = CHUNKS[length % len(CHUNKS)]
        # Odd lengths run in company, even lengths alone; every probe meets both.
        gap = length % 2 * (1 + length % 3)
        name = f"{drafter}, draft length {length}"
        cases.append(Case(name, drafter, length, chunk, gap, chosen))
    return cases
