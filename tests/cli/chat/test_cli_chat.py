"""``chat``: turns, commands, the context, and what keys mean at a terminal."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from outrider.cli.chat.command import talk
from outrider.cli.chat.commands import COMMANDS, take
from outrider.cli.chat.conversation import Conversation, turn_starts, visible
from outrider.cli.chat.terminal import CommandCompleter, Terminal, history_path, open_history
from outrider.llm.llm import LLM
from outrider.types.errors import RequestError
from outrider.types.sampling import SamplingParams

SHORT = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
CONTEXT = 160


@pytest.fixture(scope="module")
def llm(tiny: str) -> LLM:
    return LLM(tiny, drafter="ngram", max_num_seqs=1, max_model_len=CONTEXT, threads=1)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the model was asked, turn by turn."""
    asked: list[Any] = []
    stream = LLM.stream

    def spy(self: LLM, prompt: Any, params: Any = None) -> Any:
        asked.append(prompt)
        return stream(self, prompt, params)

    monkeypatch.setattr(LLM, "stream", spy)
    return asked


def said(conversation: Conversation) -> list[tuple[object, object]]:
    return [(m["role"], m["content"]) for m in conversation.messages if m["role"] != "assistant"]


# -- what is a message, and what a command


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("hello", "hello"),
        ("  indented\n  text", "  indented\n  text"),
        ("//text", "/text"),
        ("//help me", "/help me"),
        ("///text", "//text"),
        (" //text", " /text"),
        ("/etc/hosts is what?", "/etc/hosts is what?"),
        ("/* a comment */\nint x;", "/* a comment */\nint x;"),
        ("// a comment\nint x;", "// a comment\nint x;"),
        ("/", "/"),
        ("1/2", "1/2"),
    ],
)
def test_messages_may_begin_with_a_slash(llm: LLM, typed: str, sent: str) -> None:
    conversation = Conversation(llm, SHORT, None)
    assert take(conversation, typed)
    assert said(conversation) == [("user", sent)]


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("/hepl", "did you mean /help?"),
        ("/sav x", "did you mean /save?"),
        ("/zzz", "//zzz sends it as a message"),
        ("/save", "needs the name of a file"),
        ("/save x.json", "nothing to save"),
        ("/load", "needs the name of a file"),
        ("/undo", "nothing was asked yet"),
        ("/retry", "nothing was asked yet"),
        ("/continue", "no answer was cut"),
    ],
)
def test_what_cannot_be_run_says_so(llm: LLM, typed: str, hint: str) -> None:
    conversation = Conversation(llm, SHORT, None)
    with pytest.raises(RequestError) as caught:
        take(conversation, typed)
    assert hint in str(caught.value)
    assert conversation.messages == ()


@pytest.mark.parametrize(
    "typed",
    [
        "/reset the router, how do I do that?",
        "/clear skies",
        "/undo 5",
        "/help me understand this",
        "/h x",
        "/quit smoking, any tips?",
        "/bye\nand thanks",
        "/Q is a letter",
        " /retry  with tea ",
        "/continue the story",
    ],
)
def test_what_begins_as_a_command_is_not_lost(
    llm: LLM, typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation = Conversation(llm, SHORT, "s")
    take(conversation, "one")
    before, word = conversation._state, typed.split(maxsplit=1)[0]
    capsys.readouterr()
    with pytest.raises(RequestError) as caught:
        take(conversation, typed)
    assert str(caught.value) == (
        f"{word}: takes nothing after it; /{word} ... sends what you typed as a message"
    )
    assert conversation._state is before
    assert capsys.readouterr().out == ""
    assert take(conversation, f"/{typed.lstrip()}")
    assert said(conversation)[-1] == ("user", typed.lstrip())


def test_commands_say_whether_something_follows_them() -> None:
    alone = {name for name, command in COMMANDS.items() if not command.takes_text}
    assert alone == {"help", "reset", "undo", "retry", "continue", "quit"}


@pytest.mark.parametrize("typed", ["/quit", "/exit", " /QUIT "])
def test_quitting(llm: LLM, typed: str) -> None:
    assert not take(Conversation(llm, SHORT, None), typed)


def test_help_fits_the_terminal(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    take(Conversation(llm, SHORT, None), "/help")
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 80
    for name in ("/system", "/reset", "/save FILE", "/load", "/continue", "/quit", "//word"):
        assert any(line.startswith(name) for line in lines)


def test_the_system_message(llm: LLM, seen: list[Any]) -> None:
    conversation = Conversation(llm, SHORT, "old")
    for typed in ("one", "/system new words", "two", "/reset", "three", '/system ""', "four"):
        take(conversation, typed)
    systems = [[m["content"] for m in asked if m["role"] == "system"] for asked in seen]
    assert systems == [["old"], ["new words"], ["new words"], []]
    assert [len(asked) for asked in seen] == [2, 4, 2, 3]


def test_undo_and_retry(llm: LLM, seen: list[Any]) -> None:
    conversation = Conversation(llm, SHORT, "s")
    for typed in ("one", "two", "/retry", "/undo", "/undo"):
        take(conversation, typed)
    assert [m["content"] for m in seen[2]] == [m["content"] for m in seen[1]]
    assert [m["content"] for m in conversation.messages] == ["s"]


# -- answers that were cut


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_continued_answers_are_those_of_a_higher_limit(
    llm: LLM, temperature: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Noise is keyed by seed and position."""
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=4, ignore_eos=True)
    conversation = Conversation(llm, params, None)
    take(conversation, "hello")
    assert "Cut after 4 tokens. /continue goes on" in capsys.readouterr().err
    take(conversation, "/continue")
    take(conversation, "/continue")
    assert "Cut after 12 tokens" in capsys.readouterr().err
    whole = SamplingParams(temperature=temperature, seed=5, max_tokens=12, ignore_eos=True)
    right = llm.chat([{"role": "user", "content": "hello"}], whole)[0].outputs[0].text
    assert conversation.messages[-1]["content"] == right
    assert [m["role"] for m in conversation.messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    "options",
    [
        {"frequency_penalty": 1.5},
        {"presence_penalty": -1.5},
        {"repetition_penalty": 1.5},
        {"stop": "across"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_looks_back_looks_back_over_a_cut(
    llm: LLM, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Penalties count what was written before it, and a stop string may begin there."""
    base: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "skip_special_tokens": False}
    asked = [{"role": "user", "content": "hello"}]
    if "stop" in options:
        plain = llm.chat(asked, SamplingParams(**base, max_tokens=12))[0].outputs[0].text
        options = {"stop": plain[2:6]}
    base |= options
    conversation = Conversation(llm, SamplingParams(**base, max_tokens=4), None)
    take(conversation, "hello")
    while conversation._state.answer and conversation._state.answer.cut:
        if len(conversation._state.answer.tokens) >= 12:
            break
        take(conversation, "/continue")
    right = llm.chat(asked, SamplingParams(**base, max_tokens=12))[0].outputs[0]
    assert conversation._state.answer is not None
    assert list(conversation._state.answer.tokens) == right.token_ids
    assert conversation.messages[-1]["content"] == right.text


def test_a_fresh_seed_goes_on_too(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=4, ignore_eos=True)
    conversation = Conversation(llm, params, None)
    take(conversation, "hello")
    answer = conversation._state.answer
    assert answer is not None
    take(conversation, "/continue")
    again = SamplingParams(temperature=1.0, max_tokens=8, seed=answer.seed, ignore_eos=True)
    right = llm.chat([{"role": "user", "content": "hello"}], again)[0].outputs[0]
    assert conversation._state.answer is not None
    assert list(conversation._state.answer.tokens) == right.token_ids


def test_an_answer_that_ended_is_not_continued(llm: LLM) -> None:
    first = llm.chat([{"role": "user", "content": "hello"}], SHORT)[0].outputs[0].token_ids[0]
    params = SamplingParams(temperature=0, max_tokens=4, stop_token_ids=[first])
    conversation = Conversation(llm, params, None)
    take(conversation, "hello")
    with pytest.raises(RequestError, match="ended by itself"):
        take(conversation, "/continue")


# -- the context


def test_the_oldest_turns_leave_a_full_context(
    llm: LLM, seen: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    conversation = Conversation(llm, SHORT, "stay")
    for turn in range(12):
        take(conversation, f"message {turn}")
    notes = [line for line in capsys.readouterr().err.splitlines() if "no longer sees" in line]
    assert notes[0].endswith("the model no longer sees the oldest 1 turn.")
    assert len(notes) > 3
    for turn, asked in enumerate(seen):
        assert len(llm.tokenizer.encode_chat(asked)) + SHORT.max_tokens <= CONTEXT
        assert asked[0]["content"] == "stay"
        assert [m["role"] for m in asked[1:]] == ["user", "assistant"] * (len(asked) // 2 - 1) + [
            "user"
        ]
        assert asked[-1]["content"] == f"message {turn}"
    users = [text for role, text in said(conversation) if role == "user"]
    assert users == [f"message {turn}" for turn in range(12)], "none is lost to /save"


def test_a_message_too_long_is_forgotten(llm: LLM) -> None:
    conversation = Conversation(llm, SHORT, None)
    take(conversation, "hello")
    before = conversation._state
    with pytest.raises(RequestError, match=r"this message takes \d+ tokens .* holds 160"):
        take(conversation, "x" * CONTEXT)
    assert conversation._state is before
    take(conversation, "and on")
    assert [text for _, text in said(conversation)] == ["hello", "and on"]


def test_an_answer_at_the_end_of_the_context_goes_on(
    llm: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    conversation = Conversation(llm, params, None)
    take(conversation, "one")
    take(conversation, "x" * 20)
    text = str(conversation.messages[-1]["content"])
    assert "context of 160 tokens is full" in capsys.readouterr().err
    take(conversation, "/continue")
    assert str(conversation.messages[-1]["content"]).startswith(text)
    assert len(turn_starts(conversation.messages)) == 2


@pytest.mark.parametrize("system", [None, "Be a fox."])
def test_a_context_that_one_turn_fills_promises_no_room(
    llm: LLM, system: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    params = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
    conversation = Conversation(llm, params, system)
    take(conversation, "one")
    way_out = (
        "/reset begins a new conversation; --max-model-len sets the context, at most 512 tokens"
    )
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"Cut: the context of 160 tokens is full. {way_out}."
    before = conversation._state
    with pytest.raises(RequestError) as caught:
        take(conversation, "/continue")
    assert str(caught.value).startswith("/continue: what was written so far takes 160 tokens")
    assert str(caught.value).endswith(f"holds 160; {way_out}")
    assert conversation._state is before
    take(conversation, "/reset")
    take(conversation, "two")
    assert [text for _, text in said(conversation)] == [*filter(None, [system]), "two"]


def test_no_larger_context_is_promised_than_the_model_has(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = LLM(tiny, drafter="none", max_num_seqs=1, threads=1)
    conversation = Conversation(whole, SamplingParams(temperature=0, ignore_eos=True), None)
    take(conversation, "one")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == ("Cut: the context of 512 tokens is full. /reset begins a new conversation.")


@pytest.mark.parametrize("tokens", [20, 50, 60, 90, 120])
def test_what_a_cut_answer_promises_can_be_done(
    llm: LLM, tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the lengths of turns: /continue works as long as it is offered, and no longer."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    conversation = Conversation(llm, params, None)
    for typed in ("one", "two", "and three"):
        take(conversation, typed)
    for _ in range(CONTEXT):
        offered = "/continue" in capsys.readouterr().err
        answer = conversation._state.answer
        assert answer is not None
        if not offered:
            break
        take(conversation, "/continue")
        longer = conversation._state.answer
        assert longer is not None
        assert len(longer.tokens) > len(answer.tokens)
    with pytest.raises(RequestError, match=r"^/continue: what was written so far"):
        take(conversation, "/continue")


def test_what_stays_in_sight() -> None:
    roles = ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "user"]
    messages: list[dict[str, object]] = [
        {"role": role, "content": str(index)} for index, role in enumerate(roles)
    ]
    kept = [[int(str(m["content"])) for m in visible(messages, hidden)] for hidden in range(3)]
    assert kept == [list(range(8)), [0, 5, 6, 7], [0, 7]]


# -- turns that fail


@pytest.mark.parametrize("fault", [KeyboardInterrupt, RequestError("x", "planted"), MemoryError])
@pytest.mark.parametrize("typed", ["two", "/retry", "/continue"])
def test_a_turn_that_fails_leaves_no_trace(
    llm: LLM, fault: Any, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = Conversation(llm, SHORT, "s")
    take(conversation, "one")
    before = conversation._state
    rounds = iter(range(100))
    step = type(llm.engine).step

    def failing(self: Any) -> Any:
        if next(rounds) == 2:
            raise fault
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(type(llm.engine), "step", failing)
        lines = iter([typed, None])
        terminal: Any = type("Lines", (), {"read": lambda self: next(lines)})()
        talk(conversation, terminal)
    assert conversation._state is before
    assert not llm.engine.has_unfinished
    take(conversation, "three")


# -- files


def test_saved_conversations_come_back(llm: LLM, tmp_path: Path, seen: list[Any]) -> None:
    path = tmp_path / "my talk.json"
    conversation = Conversation(llm, SHORT, "grüße")
    take(conversation, "one 🤗")
    take(conversation, f"/save {path}")
    assert llm.chat(json.loads(path.read_text()), SHORT)
    other = Conversation(llm, SHORT, None)
    take(other, f"/load {path}")
    assert other.messages == conversation.messages
    take(other, "two")
    assert [m["role"] for m in seen[-1]] == ["system", "user", "assistant", "user"]


def test_a_conversation_may_begin_with_a_byte_order_mark(llm: LLM, tmp_path: Path) -> None:
    message = {"role": "user", "content": "one"}
    (tmp_path / "t.json").write_text("\ufeff" + json.dumps([message]), encoding="utf-8")
    conversation = Conversation(llm, SHORT, None)
    take(conversation, f"/load {tmp_path / 't.json'}")
    assert list(conversation.messages) == [message]


def test_files_are_not_overwritten_unasked(llm: LLM, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("precious")
    conversation = Conversation(llm, SHORT, None)
    take(conversation, "one")
    with pytest.raises(RequestError, match=r"exists; /save! .* replaces it"):
        take(conversation, f"/save {path}")
    assert path.read_text() == "precious"
    take(conversation, f"/save! {path}")
    assert json.loads(path.read_text())[0] == {"role": "user", "content": "one"}
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_a_file_that_is_saved_over_keeps_its_permissions(llm: LLM, tmp_path: Path) -> None:
    conversation = Conversation(llm, SHORT, None)
    take(conversation, "one")
    for mode in (0o644, 0o640, 0o600):
        path = tmp_path / f"{mode:o}"
        path.touch()
        path.chmod(mode)
        take(conversation, f"/save! {path}")
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert json.loads(path.read_text())[0]["content"] == "one"
    for typed in ("/save", "/save!"):
        path = tmp_path / typed[1:]
        take(conversation, f"{typed} {path}")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("length", [250, 255])
def test_names_as_long_as_names_can_be_are_saved(llm: LLM, tmp_path: Path, length: int) -> None:
    conversation = Conversation(llm, SHORT, None)
    take(conversation, "one")
    take(conversation, f"/save {tmp_path / ('x' * length)}")
    take(conversation, f"/save! {tmp_path / ('x' * length)}")
    assert [len(path.name) for path in tmp_path.iterdir()] == [length]
    with pytest.raises(RequestError, match="cannot be written: File name too long"):
        take(conversation, f"/save {tmp_path / ('x' * 256)}")
    with pytest.raises(RequestError, match="cannot be read: File name too long"):
        take(conversation, f"/load {tmp_path / ('x' * 256)}")
    assert [len(path.name) for path in tmp_path.iterdir()] == [length]


def test_a_folder_that_takes_no_other_file_is_left_as_it_was(
    llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = Conversation(llm, SHORT, None)
    take(conversation, "one")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (_ for _ in ()).throw(full))
    with pytest.raises(RequestError, match="cannot be written: No space"):
        take(conversation, f"/save {tmp_path}/new")
    assert not list(tmp_path.iterdir())


def test_a_save_that_fails_leaves_nothing(
    llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = Conversation(llm, SHORT, None)
    take(conversation, "one")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(full))
    (tmp_path / "old").write_text("precious")
    for typed in (f"/save {tmp_path}/new", f"/save! {tmp_path}/old", f"/save {tmp_path}/no/new"):
        with pytest.raises(RequestError, match="cannot be written"):
            take(conversation, typed)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("old", "precious")]
    with pytest.raises(RequestError, match="is not a file"):
        take(conversation, f"/save! {tmp_path}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"{", "cannot be read"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"[]", "at least one message"),
        (b'"hi"', "must be a list"),
        (b'[{"role": "user"}]', "messages[0].content: is missing"),
        (b'[{"role": "user", "content": [{"type": "image_url"}]}]', "image_url"),
        (b"[" * 100_000, "cannot be read"),
    ],
)
def test_what_cannot_be_loaded_keeps_the_conversation(
    llm: LLM, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "t.json"
    if content is not None:
        path.write_bytes(content)
    conversation = Conversation(llm, SHORT, None)
    take(conversation, "one")
    before = conversation._state
    with pytest.raises(RequestError) as caught:
        take(conversation, f"/load {path}")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert conversation._state is before


def test_devices_and_pipes_are_not_loaded(llm: LLM, tmp_path: Path) -> None:
    conversation = Conversation(llm, SHORT, None)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(RequestError, match="is not a file"):
            take(conversation, f"/load {path}")


def test_a_question_that_was_saved_can_be_answered(
    llm: LLM, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    path.write_text(json.dumps({"messages": [{"role": "user", "content": parts}]}))
    conversation = Conversation(llm, SHORT, None)
    take(conversation, f"/load {path}")
    assert "/retry answers it" in capsys.readouterr().err
    take(conversation, "/retry")
    assert [m["role"] for m in conversation.messages] == ["user", "assistant"]
    assert conversation.messages[0]["content"] == "a\nb"


# -- over a pipe


def test_the_first_error_ends_a_pipe(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n//two\n/three\nnever\n"))
    ended = outrider("chat", "--model", tiny, "--max-tokens", "4", "-t", "0")
    assert ended.status == 2
    assert ended.err.count("tokens/s") == 2
    assert ended.err.splitlines()[-1].startswith("outrider: /three: is no command")


def test_piped_lines_may_end_as_on_windows(
    outrider: Any, tiny: str, seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = io.StringIO("one\r\ntwo\rthree\n/quit\r\n", newline="\n")
    monkeypatch.setattr("sys.stdin", lines)
    assert outrider("chat", "--model", tiny, "--max-tokens", "4", "-t", "0").status == 0
    users = [m["content"] for m in seen[-1] if m["role"] == "user"]
    assert users == ["one", "two\rthree"]


def test_a_model_without_a_template_says_so_at_once(
    outrider: Any, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).symlink_to(Path(tiny) / name)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ended = outrider("chat", "--model", tmp_path)
    assert ended.status == 2
    assert "has no chat template" in ended.err
    # Neither the message nor the audit is for conversations alone.
    checked = outrider("check", "--model", tmp_path, "--drafter", "ngram", "--effort", "quick")
    assert checked.status == 0


def test_a_line_without_end_is_refused(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outrider.cli.message.MOST", 10)
    monkeypatch.setattr("outrider.cli.chat.command.MOST", 10)
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 11))
    ended = outrider("chat", "--model", tiny)
    assert (ended.status, ended.err) == (2, "outrider: messages: is longer than 10 characters\n")


# -- at a terminal


@contextmanager
def typing(text: str) -> Iterator[Terminal]:
    """A terminal at which a text is typed, and then nothing more."""
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(text)
        yield Terminal()


@pytest.fixture(autouse=True)
def own_history(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder / "outrider" / "history"


@pytest.mark.parametrize(
    ("keys", "read"),
    [
        ("hi\r", "hi"),
        ("\x1b[200~a\nb\r\n\rc\x1b[201~\r", "a\nb\n\nc"),
        ("say \x1b[200~/help\nb\n\x1b[201~\r", "say /help\nb"),
        ("a\x1b\rb\r", "a\nb"),
        ("a\\\rb\r", "a\nb"),
        ("a\\\\\r", "a\\\\"),
        ("abc\x03def\r", "def"),
        ("\x1b[200~a\nb\x1b[201~\x03c\r", "c"),
        ("\x03n\rhi\r", "hi"),
        ("\x03\rhi\r", "hi"),
        ("\x03no\rhi\r", "hi"),
        ("\x03maybe\rhi\r", "hi"),
        ("\x03\x03", None),
        ("\x03y", None),
        ("\x03Y\r", None),
        ("\x03\x04", None),
        ("\x04", None),
        ("\r", ""),
    ],
)
def test_keys(keys: str, read: str | None) -> None:
    with typing(keys) as terminal:
        assert terminal.read() == read


def test_the_history_lasts_and_is_the_users_own(own_history: Path) -> None:
    with typing("first\r\x1b[200~two\nlines\x1b[201~\r") as terminal:
        assert [terminal.read(), terminal.read()] == ["first", "two\nlines"]
    assert stat.S_IMODE(own_history.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_history.parent.stat().st_mode) == 0o700
    assert list(open_history().load_history_strings()) == ["two\nlines", "first"]


def test_a_history_that_cannot_be_kept_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outrider").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with typing("hi\rho\r") as terminal:
        assert [terminal.read(), terminal.read()] == ["hi", "ho"]
    assert capsys.readouterr().err.count("The history is not kept") == 1


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_the_history_is_not_waited_for(
    own_history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_history.parent.mkdir(parents=True)
    os.mkfifo(own_history)
    with typing("hi\r") as terminal:
        assert terminal.read() == "hi"
    assert f"The history is not kept: {own_history}: is not a file" in capsys.readouterr().err


def test_a_history_that_is_lost_midway_is_no_fault(own_history: Path) -> None:
    with typing("hi\rho\r") as terminal:
        own_history.unlink()
        own_history.mkdir()
        assert [terminal.read(), terminal.read()] == ["hi", "ho"]


def test_where_the_history_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    for folder in ("relative", ""):
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        assert history_path() == Path("/home/someone/.local/state/outrider/history")


def test_commands_and_files_are_completed(tmp_path: Path) -> None:
    (tmp_path / "talk.json").touch()

    def completed(text: str) -> list[str]:
        found = CommandCompleter().get_completions(Document(text), CompleteEvent())
        return [text[: len(text) + c.start_position] + c.text for c in found]

    assert completed("/s") == ["/system", "/save", "/save!"]
    assert completed(f"/load {tmp_path}/t") == [f"/load {tmp_path}/talk.json"]
    assert completed("hello /s") == []
    assert completed("/reset x") == []


#: What a prompt tells its terminal when it begins to read.
READS = b"\x1b[?2004h"


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
def test_a_whole_conversation_at_a_real_terminal(tiny: str, own_history: Path) -> None:
    """Keys that are pressed while an answer is written wait; Ctrl-C at a prompt asks."""
    ours, theirs = os.openpty()
    code = "from outrider.cli.main import run; run()"
    source = str(Path(__file__).parents[3] / "src")
    arguments = ["chat", "--model", tiny, "-t", "0", "-n", "4", "--ignore-eos"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": source, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(ours, 4096)
        shown = shown.split(text, 1)[1]

    try:
        until(b"Ctrl-D ends")
        until(READS)
        os.write(ours, b"one\r")
        until(b"Cut after 4 tokens")
        os.write(ours, b"\x1b[200~two\nlines\x1b[201~\r")
        until(b"Cut after 4 tokens")
        until(READS)  # until then Ctrl-C belongs to the answer
        os.write(ours, b"\x03")
        until(b"End this conversation?")
        until(READS)
        os.write(ours, b"\r")
        until(READS)
        os.write(ours, b"/nonsense\r")
        until(b"is no command")
        until(READS)
        os.write(ours, b"\x04")
        assert process.wait() == 0
    finally:
        process.kill()
        os.close(ours)
    assert "+two\n+lines\n" in own_history.read_text()
