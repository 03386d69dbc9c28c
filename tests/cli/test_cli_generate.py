"""``generate``, ``chat`` and ``demo`` on a tiny model."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from outrider.engine import Engine

GREEDY = ("--temperature", "0", "--max-tokens", "24")
SAMPLED = ("--temperature", "0.8", "--seed", "7", "--max-tokens", "24")
PROMPT = "abcabcabc"

SHAPE = {
    "text",
    "token_ids",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "seed",
    "timings",
    "speculation",
}
TIMINGS = {"prefill_s", "decode_s", "tokens_per_s"}
SPECULATION = {
    "drafter",
    "rounds",
    "drafted",
    "accepted",
    "acceptance_length",
    "accepted_per_position",
}


def test_json_is_one_object_of_the_documented_shape(process: Any, tiny: str) -> None:
    ended = process(
        "generate", PROMPT, "--model", tiny, "--kernels", "reference", "--json", *GREEDY
    )
    assert ended.status == 0
    assert ended.err == ""
    found: Any = ended.json()
    assert set(found) == SHAPE
    assert set(found["timings"]) == TIMINGS
    assert set(found["speculation"]) == SPECULATION
    assert found["finish_reason"] in ("stop", "length")
    assert found["completion_tokens"] == len(found["token_ids"]) <= 24
    assert found["speculation"]["drafter"] == "ngram"


@pytest.mark.parametrize("choice", [GREEDY, SAMPLED])
@pytest.mark.parametrize("raw", [(), ("--raw",)])
def test_a_drafter_changes_no_token(
    outrider: Any, tiny: str, drafter: str, choice: tuple[str, ...], raw: tuple[str, ...]
) -> None:
    arguments = ("generate", PROMPT, "--model", tiny, "--json", *choice, *raw)
    plain = outrider(*arguments, "--drafter", "none").json()
    assert plain["speculation"]["drafted"] == 0
    for name in ("ngram", drafter):
        found = outrider(*arguments, "--drafter", name).json()
        assert found["token_ids"] == plain["token_ids"]
        assert found["text"] == plain["text"]


def test_streamed_text_is_the_text(outrider: Any, tiny: str) -> None:
    arguments = ("generate", PROMPT, "--model", tiny, *SAMPLED)
    whole = outrider(*arguments, "--json").json()["text"]
    assert outrider(*arguments).out == whole + "\n"


def test_an_omitted_seed_is_reported_and_repeats(outrider: Any, tiny: str) -> None:
    arguments = ("generate", PROMPT, "--model", tiny, "--json", "--max-tokens", "12")
    first = outrider(*arguments).json()
    again = outrider(*arguments, "--seed", first["seed"]).json()
    assert again["token_ids"] == first["token_ids"]


def test_the_prompt_may_come_from_standard_input(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--model", tiny, "--json", *GREEDY)
    expected = outrider("generate", PROMPT, *arguments).json()["token_ids"]
    monkeypatch.setattr("sys.stdin", io.StringIO(PROMPT))
    assert outrider("generate", "-", *arguments).json()["token_ids"] == expected


def test_sampling_options_reach_the_sampler(outrider: Any, tiny: str) -> None:
    base = ("generate", PROMPT, "--model", tiny, "--json", *GREEDY)
    plain = outrider(*base).json()
    first = plain["token_ids"][0]
    banned = outrider(*base, "--logit-bias", f"{first}=-100").json()
    assert banned["token_ids"][0] != first
    ended = outrider(*base, "--stop-token-id", first).json()
    assert ended["token_ids"] == [first]
    assert ended["finish_reason"] == "stop"
    later = outrider(*base, "--stop-token-id", first, "--min-tokens", "3").json()
    assert len(later["token_ids"]) > 3 or later["finish_reason"] == "stop"
    assert first not in later["token_ids"][:3]


def test_a_prompt_that_does_not_fit_is_refused(outrider: Any, tiny: str) -> None:
    ended = outrider("generate", "x" * 600, "--model", tiny)
    assert ended.status == 2
    assert "512" in ended.err


def test_chat_over_a_pipe(outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "hello\n\n/reset\nhello\n/help\nand then?\n/quit\nnever asked\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    ended = outrider("chat", "--model", tiny, "--temperature", "0", "--max-tokens", "6")
    assert ended.status == 0
    assert ended.err.count("tokens/s") == 3
    assert ended.err.count("draft tokens accepted") == 3
    assert "New conversation." in ended.err
    assert "/quit" in ended.err
    assert "tokens/s" not in ended.out


def test_chat_remembers_until_it_is_reset(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outrider.llm.llm import LLM

    seen: list[list[tuple[str, str]]] = []
    stream = LLM.stream

    def spy(self: LLM, prompt: Any, params: Any = None) -> Any:
        seen.append([(m["role"], m["content"]) for m in prompt])
        return stream(self, prompt, params)

    monkeypatch.setattr(LLM, "stream", spy)
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n/reset\nthree\n"))
    outrider("chat", "--model", tiny, "--max-tokens", "4", "--system", "be brief")
    system = ("system", "be brief")
    assert seen[0] == [system, ("user", "one")]
    assert [role for role, _ in seen[1]] == ["system", "user", "assistant", "user"]
    assert seen[1][-1] == ("user", "two")
    assert seen[2] == [system, ("user", "three")]


@pytest.mark.parametrize("command", ["generate", "chat", "check", "bench", "demo", "inspect"])
def test_unknown_precision_is_one_line(outrider: Any, command: str) -> None:
    source = ("smollm2",) if command == "inspect" else ()
    ended = outrider(command, *source, "--kv-cache-dtype", "fp8")
    assert ended.status == 2
    assert "--kv-cache-dtype" in ended.err
    assert "bfloat16" in ended.err
    assert ended.err.count("\n") == 1


def test_precision_reaches_the_engine(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(self: Engine, *args: Any) -> None:
        began(self, *args)
        seen.append(self.kv_cache_dtype)

    began = Engine.__init__
    monkeypatch.setattr(Engine, "__init__", spy)
    ask = ("generate", "hi", "--model", tiny, "--max-tokens", "2", "--drafter", "none")
    for options in ((), ("--kv-cache-dtype", "int8"), ("--kv-cache-dtype", "float32")):
        assert outrider(*ask, *options).status == 0
    assert seen == ["bfloat16", "int8", "float32"]


def test_demo_compares_and_succeeds(outrider: Any, tiny: str) -> None:
    ended = outrider("demo", "--model", tiny, "--max-tokens", "16")
    assert ended.status == 0
    assert "Same answer, byte for byte" in ended.out
    assert "drafter: none" in ended.out
    assert "drafter: ngram" in ended.out
    # The table, after the two streamed answers: plain first, both with the same hash.
    table = ended.out.splitlines()
    rows = [line.split() for line in table if re.match(r" (none|ngram) ", line)]
    assert [row[0] for row in rows] == ["none", "ngram"]
    assert rows[0][1] == rows[1][1] == "16"
    assert rows[0][-1] == rows[1][-1]
    assert rows[0][-2] == "1.00"
    assert re.search(r"Same answer, byte for byte: 16 tokens, \d+ bytes\.", ended.out)
    assert re.search(r"Drafted: [\d.]+ tokens/s, plain: [\d.]+\.", ended.out)


def test_demo_takes_the_shipped_drafter(outrider: Any) -> None:
    ended = outrider("demo", "--max-tokens", "24")
    assert ended.status == 0
    assert "drafter: ngram+dspark" in ended.out


def test_demo_without_a_drafter_is_refused(outrider: Any) -> None:
    ended = outrider("demo", "--model", "/nonexistent", "--drafter", "none")
    assert ended.status == 2
    assert ended.err.startswith("outrider: --drafter: ")


def test_demo_fails_if_the_answers_differ(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outrider.llm.llm import LLM

    variant = LLM.variant

    def misbound(self: LLM, *arguments: Any, **options: Any) -> LLM:
        twin = variant(self, *arguments, **options)
        stream = twin.stream
        twin.stream = lambda prompt, params=None: stream("another prompt", params)
        return twin

    monkeypatch.setattr(LLM, "variant", misbound)
    ended = outrider("demo", "--model", tiny, "--max-tokens", "16")
    assert ended.status == 1
    assert "DIFFER" in ended.out
