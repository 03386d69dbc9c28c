"""What is asked and what is told: prompts from every source, several answers, log-probabilities."""

from __future__ import annotations

import io
import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.warm import ForkServer

GREEDY = ("--temperature", "0", "--max-tokens", "6")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the model was given, call by call."""
    from outrider.llm.llm import LLM

    seen: list[Any] = []
    stream = LLM.stream

    def spy(self: LLM, prompt: Any, params: Any = None) -> Any:
        seen.append(prompt)
        return stream(self, prompt, params)

    monkeypatch.setattr(LLM, "stream", spy)
    return seen


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("arguments", "stdin", "text"),
    [
        (("hi",), "", "hi"),
        (("-",), "from a pipe\n", "from a pipe\n"),
        (("--file", "-"), "from a pipe\n", "from a pipe\n"),
        (("--file", "FILE"), "", "grün\r\nzwei\u2028drei\n"),
        (("-f", "FILE"), "", "grün\r\nzwei\u2028drei\n"),
        (("Translate:", "--file", "FILE"), "", "Translate:\n\ngrün\r\nzwei\u2028drei\n"),
        (("Translate:", "--file", "-"), "eins", "Translate:\n\neins"),
        (("-", "--file", "FILE"), "First this.", "First this.\n\ngrün\r\nzwei\u2028drei\n"),
        (("-5 + 3 = ?",), "", "-5 + 3 = ?"),
        (("-5",), "", "-5"),
        (("- one\n- two",), "", "- one\n- two"),
        (("--what is that?",), "", "--what is that?"),
        (("--stop", "- x", "-1 or -2?"), "", "-1 or -2?"),
        (("--", "--debug"), "", "--debug"),
        (("--", "-n 5"), "", "-n 5"),
        (("--", "-"), "dash", "dash"),
    ],
)
def test_the_prompt_is_the_argument_and_then_the_rest(
    outrider: Any,
    asked: list[Any],
    tiny: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    stdin: str,
    text: str,
) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes("\ufeffgrün\r\nzwei\u2028drei\n".encode())
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    named = [str(file) if one == "FILE" else one for one in arguments]
    ended = outrider("generate", "--model", tiny, *GREEDY, *named)
    assert (ended.status, asked) == (0, [user(text)])


def test_an_argument_and_piped_text_are_both_used(process: Any, tiny: str) -> None:
    """Also without an argument; an empty pipe adds nothing."""
    arguments = ("--model", tiny, "--json", *GREEDY)
    found = process("generate", "Sum up:", *arguments, stdin="one two\n").json()
    whole = process("generate", "Sum up:\n\none two\n", *arguments).json()
    assert found["prompt_tokens"] == whole["prompt_tokens"]
    assert found["token_ids"] == whole["token_ids"]
    alone = process("generate", *arguments, stdin="one two\n").json()
    assert alone["prompt_tokens"] == whole["prompt_tokens"] - len("Sum up:\n\n")


@pytest.mark.parametrize("text", ["a\r\nb\rc\n", "\ufeffa", "\ufeff\ufeffa\ufeff", "\r\n"])
def test_text_reaches_the_prompt_as_it_is(
    tiny: str, tmp_path: Path, text: str, process: Any
) -> None:
    """Line ends are kept; one byte order mark at the start is not text, wherever it comes from."""
    arguments = ("--model", tiny, "--raw", "--json", "--max-tokens", "1")
    file = tmp_path / "text.txt"
    file.write_bytes(b"x" + text.encode() if text == "\r\n" else text.encode())
    wanted = len(file.read_bytes().removeprefix("\ufeff".encode()))
    found = process("generate", "--file", file, *arguments).json()
    assert found["prompt_tokens"] == wanted
    piped = process("generate", "-", *arguments, stdin=file.read_bytes().decode()).json()
    assert piped["prompt_tokens"] == wanted


def test_a_socket_is_a_pipe_too(server: ForkServer, tiny: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = server.start(
            ["generate", "ab", "--raw", "--json", "--model", tiny],
            stdin=theirs.fileno(),
            stdout=subprocess.PIPE,
        )
        ours.sendall(b"one two")
        ours.shutdown(socket.SHUT_WR)
        out, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["prompt_tokens"] == len("ab\n\none two")


def test_a_home_folder_of_nobody_is_no_file(outrider: Any) -> None:
    for arguments in (
        ("generate", "--file", "~nobody-has-this-name/x"),
        ("bench", "--prompts", "~nobody-has-this-name/x"),
        ("inspect", "~nobody-has-this-name/x"),
        ("generate", "hi", "--model", "~nobody-has-this-name/x"),
    ):
        ended = outrider(*arguments)
        assert (ended.status, ended.out) == (2, "")
        assert ended.err.count("\n") == 1
        assert "~nobody-has-this-name/x" in ended.err


def test_a_pipe_that_stays_silent_is_explained(server: ForkServer, tiny: str) -> None:
    """The text goes down the pipe only after the explanation has come."""
    process = server.start(["generate", "hi", "--model", tiny, *GREEDY], stdin=subprocess.PIPE)
    assert b"</dev/null" in process.stderr.readline()
    process.communicate(b"and this")
    assert process.returncode == 0


def test_a_system_message_goes_first(outrider: Any, asked: list[Any], tiny: str) -> None:
    system = {"role": "system", "content": "be brief"}
    outrider("generate", "hi", "--system", "be brief", "--model", tiny, *GREEDY)
    outrider("generate", "hi", "-s", "", "--model", tiny, *GREEDY)
    assert asked == [[system, *user("hi")], [{"role": "system", "content": ""}, *user("hi")]]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("",), "prompt: is empty"),
        ((" \n",), "prompt: is empty"),
        (("--file", "EMPTY"), "prompt: is empty"),
        ((), "prompt: is missing"),
        (("--file", "/nonexistent"), "--file: /nonexistent: cannot be read: No such file"),
        (("--file", "/"), "--file: /: cannot be read: Is a directory"),
        (("--file", "LATIN"), "is not UTF-8 (byte 0xe9)"),
        (("-", "--file", "-"), "--file: standard input can be read once"),
        (("caf\udce9",), "prompt: is not UTF-8"),
        (("hi", "--system", "caf\udce9"), "--system: is not UTF-8"),
        (("hi", "--raw", "--system", "x"), "--system: has no place"),
        (("hi", "--logprobs", "2"), "--logprobs: are shown in JSON only"),
        (("hi", "--json", "--logprobs", "99"), "logprobs: must be in [0, 20]"),
        (("hi", "--n", "0"), "n: must be in [1, 128]"),
        (("-nine lives",), "is option -n meant? A prompt that begins with a dash goes last"),
        (("-x",), 'a prompt that begins with a dash goes last, after "--"'),
    ],
)
def test_what_cannot_be_asked_is_refused(
    outrider: Any, tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    """Before the model is looked for."""
    (tmp_path / "EMPTY").write_text("")
    (tmp_path / "LATIN").write_bytes(b"caf\xe9")
    placed = [str(tmp_path / one) if one in ("EMPTY", "LATIN") else one for one in arguments]
    ended = outrider("generate", "--model", "/nonexistent", *placed)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert named in ended.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("generate", "hi", "--stop", "a\udcff"), "stop: must be valid Unicode text"),
        (("generate", "hi", "--stop", "ok", "--stop", "\udcff"), "stop: must be valid Unicode"),
        (("generate", "hi", "--raw", "--stop", "\udcff"), "stop: must be valid Unicode"),
        (("chat", "--stop", "a\udcff"), "stop: must be valid Unicode text"),
        (("chat", "--system", "a\udcff"), "--system: is not UTF-8"),
        (("demo", "--prompt", "a\udcff"), "--prompt: is not UTF-8"),
        (("generate", "hi", "--logit-bias", "1=\udcff"), "--logit-bias: must be ID=VALUE"),
        (("generate", "hi", "--kernels", "\udcff"), "kernels: must be one of"),
    ],
)
def test_words_that_are_not_utf8_are_refused(
    outrider: Any, arguments: tuple[str, ...], named: str
) -> None:
    """Before the model is looked for; Python keeps such bytes as halves of surrogates."""
    ended = outrider(*arguments, "--model", "/nonexistent")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert named in ended.err


def test_several_answers_in_json(outrider: Any, tiny: str) -> None:
    arguments = ("generate", "abc", "--model", tiny, "--json", "--seed", "5", "--max-tokens", "6")
    found = outrider(*arguments, "--n", "3").json()
    assert [one["index"] for one in found["outputs"]] == [0, 1, 2]
    first = {name: value for name, value in found["outputs"][0].items() if name != "index"}
    assert {name: found[name] for name in first} == first
    assert "outputs" not in outrider(*arguments).json()
    for index, one in enumerate(found["outputs"]):
        assert one["seed"] == 5 + index
        alone = outrider(*arguments[:-4], "--seed", 5 + index, "--max-tokens", "6").json()
        assert one["token_ids"] == alone["token_ids"]
        assert one["completion_tokens"] == len(one["token_ids"])


@pytest.mark.parametrize("raw", [(), ("--raw",)])
def test_several_answers_are_told_apart(outrider: Any, tiny: str, raw: tuple[str, ...]) -> None:
    arguments = ("generate", "abc", "--model", tiny, "--seed", "5", "--max-tokens", "6", *raw)
    texts = [one["text"] for one in outrider(*arguments, "--n", "2", "--json").json()["outputs"]]
    shown = outrider(*arguments, "--n", "2").out
    assert shown == f"--- 1 of 2 ---\n{texts[0]}\n\n--- 2 of 2 ---\n{texts[1]}\n"


def test_log_probabilities_in_json(outrider: Any, tiny: str) -> None:
    """In the shape of chat completions: greedy tokens are the likeliest, and add up to one."""
    arguments = ("generate", "abc", "--model", tiny, "--json", *GREEDY)
    plain = outrider(*arguments).json()
    assert "logprobs" not in plain
    found = outrider(*arguments, "--logprobs", "2").json()
    content = found["logprobs"]["content"]
    assert [one["token_id"] for one in content] == found["token_ids"] == plain["token_ids"]
    for one in content:
        assert set(one) == {"token", "token_id", "logprob", "bytes", "rank", "top_logprobs"}
        assert one["rank"] == 1
        assert one["logprob"] < 0
        assert one["top_logprobs"][0] == {
            name: one[name] for name in ("token", "token_id", "logprob", "bytes")
        }
        whole = "\ufffd" not in one["token"]
        assert one["bytes"] == (list(one["token"].encode()) if whole else None)
        assert len(one["top_logprobs"]) == 2
        assert one["top_logprobs"][1]["logprob"] <= one["logprob"]
    assert "top_logprobs" in json.dumps(outrider(*arguments, "--n", "2", "--logprobs", "0").json())


def test_a_cut_answer_says_how_to_go_on(outrider: Any, tiny: str) -> None:
    arguments = ("generate", "abc", "--model", tiny, "--temperature", "0", "--ignore-eos")
    assert (
        outrider(*arguments, "-n", "6").err
        == "The answer was cut at 6 tokens; --max-tokens allows more.\n"
    )
    several = outrider(*arguments, "-n", "6", "--n", "2").err
    assert several == "2 of 2 answers were cut at 6 tokens; --max-tokens allows more.\n"
    full = outrider(*arguments, "-n", "900").err
    assert (
        full == "The answer was cut at the end of the context, 512 tokens; see --max-model-len.\n"
    )
    assert outrider(*arguments, "-n", "6", "--json").err == ""
    ended = outrider(*arguments, "-n", "6", "--logit-bias", "97=100", "--stop-token-id", "97")
    assert ended.err == ""


@pytest.mark.parametrize("form", [(), ("--json",), ("--n", "2")])
def test_verbose_says_what_took_how_long(outrider: Any, tiny: str, form: tuple[str, ...]) -> None:
    plain = outrider("generate", "abc", "--model", tiny, "--seed", "1", "-n", "6", *form)
    for option in ("-v", "--verbose"):
        ended = outrider(
            "generate", "abc", "--model", tiny, "--seed", "1", "-n", "6", *form, option
        )
        lines = dict(line.split(None, 1) for line in ended.err.splitlines())
        for name in ("load", "prefill", "decode", "drafting", "seed"):
            assert name in lines
        assert lines["seed"] == "1"
        assert "draft tokens accepted" in lines["drafting"]
        assert "tokens/s" in lines["decode"]
        if form != ("--json",):
            assert ended.out == plain.out
