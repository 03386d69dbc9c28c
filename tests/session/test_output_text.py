"""What readers of outputs and streams see of the text, token by token."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.config.engine import EngineConfig
from outrider.engine import Engine, Request
from outrider.text.gguf_tokenizer import GgufVocabulary, build_tokenizer
from outrider.text.tokenizer import SpecialTokens, Tokenizer
from outrider.types.output import Delta
from outrider.types.sampling import SamplingParams
from support.adversaries import Scripted, oracle
from support.chain import chain, chain_target
from support.run import make_engine, serve

SPACE = "\u2581"
WORDS = [f"{SPACE}Hello", f"{SPACE}world", f"{SPACE}again", "!", "größe"]
TOKENS = ["<unk>", "<s>", "</s>", "<|user|>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
KINDS = [2, 3, 3, 3, *[6] * 256, *[1] * (len(WORDS) - 1), 4]
AT = {token: index for index, token in enumerate(TOKENS)}
GREEDY = SamplingParams(temperature=0, max_tokens=12, logprobs=0)
DRAFTING = pytest.mark.parametrize("drafting", [False, True])


def make_tokenizer() -> Tokenizer:
    """A SentencePiece vocabulary as Llama 2 has it: one space before a text is left out."""
    scores = [-float(index) for index in range(len(TOKENS))]
    vocabulary = GgufVocabulary("tiny", "llama", TOKENS, token_types=KINDS, scores=scores, unk_id=0)
    return Tokenizer(build_tokenizer(vocabulary), "tiny", SpecialTokens(bos_id=1, eos_ids=(2,)))


TOKENIZER = make_tokenizer()


def spell(text: bytes) -> list[int]:
    return [AT[f"<0x{byte:02X}>"] for byte in text]


def engine(ids: list[int], drafting: bool) -> Engine:
    """An engine whose greedy answers walk along ``ids``."""
    drafter = Scripted("right", oracle([ids])) if drafting else None
    config = EngineConfig(max_num_seqs=4, draft_length=8)
    return make_engine(chain_target(TOKENIZER, chain(ids)), drafter, config)


def finish(served: Engine, request: Request) -> tuple[str, list[Delta]]:
    """Run a request to its end."""
    request_id = served.add(request)
    deltas: list[Delta] = []
    while served.has_unfinished:
        deltas += served.step()
    return request_id, deltas


HELLO, WORLD, AGAIN, MARK, GROESSE = (AT[word] for word in WORDS)
ANSWER = [WORLD, AGAIN, MARK, 2]


@DRAFTING
@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ([1, HELLO], " world again!"),
        ([HELLO], " world again!"),
        ([1], "world again!"),  # a prompt without text: the output's text is the whole
        ([3], "world again!"),
        ([1, HELLO, 3], " world again!"),  # a chat prompt ends in markup
        ([1, *spell(b"\n")], " world again!"),
        ([1, GROESSE], " world again!"),
    ],
)
def test_an_output_continues_its_prompt(prompt: list[int], text: str, drafting: bool) -> None:
    served = engine([*prompt, *ANSWER], drafting)
    request_id, deltas = finish(served, Request(prompt, replace(GREEDY, n=2)))
    output = served.take(request_id)
    for completion in output.outputs:
        assert completion.text == text
        assert completion.token_ids == ANSWER
        assert len(completion.logprobs or []) == len(ANSWER)
        streamed = [delta.text for delta in deltas if delta.index == completion.index]
        assert "".join(streamed) == text
    whole = TOKENIZER.decode([*prompt, *ANSWER], skip_special=True)
    assert TOKENIZER.decode(prompt, skip_special=True) + text == whole


def test_markup_that_is_shown_is_text_of_the_prompt() -> None:
    params = replace(GREEDY, skip_special_tokens=False)
    completion = serve(chain_target(TOKENIZER, chain([1, *ANSWER])), None, [([1], params)])[
        0
    ].outputs[0]
    assert completion.text == " world again!"
    assert completion.token_ids == ANSWER


@DRAFTING
def test_a_line_break_spelled_as_a_byte_stops_at_its_token(drafting: bool) -> None:
    (line,) = spell(b"\n")
    ids = [1, HELLO, WORLD, line, AGAIN, MARK, 2]
    params = replace(GREEDY, stop=["\n"])
    target = chain_target(TOKENIZER, chain(ids))
    drafter = Scripted("right", oracle([ids])) if drafting else None
    completion = serve(target, drafter, [(ids[:2], params)])[0].outputs[0]
    assert completion.token_ids == [WORLD, line]
    assert completion.text == " world"
    assert (completion.finish_reason, completion.stop_reason) == ("stop", "\n")
    assert [entry.token_id for entry in completion.logprobs or []] == [WORLD, line]


def test_readers_of_a_stream_see_each_character_with_its_last_byte() -> None:
    face, line = spell("🤗".encode()), spell(b"\n")
    ids = [1, HELLO, *face, *line, MARK, 2]
    served = engine(ids, drafting=False)
    _, deltas = finish(served, Request(ids[:2], GREEDY))
    seen = [(delta.token_ids, delta.text) for delta in deltas]
    texts = ["", "", "", "🤗", "\n", "!", ""]
    assert seen == [((token,), text) for token, text in zip(ids[2:], texts, strict=True)]


@DRAFTING
def test_a_prompt_that_ends_inside_a_character(drafting: bool) -> None:
    face = spell("🤗".encode())
    ids = [1, HELLO, *face, WORLD, 2]
    served = engine(ids, drafting)
    request_id, _ = finish(served, Request(ids[:4], GREEDY))
    assert served.take(request_id).outputs[0].text == "🤗 world"
    broken = [1, HELLO, *face[:2], WORLD, 2]
    served = engine(broken, drafting)
    request_id, _ = finish(served, Request(broken[:4], GREEDY))
    assert served.take(request_id).outputs[0].text == " world"


def test_added_tokens_are_output_as_they_are() -> None:
    ids = [1, HELLO, GROESSE, MARK, 2]
    served = engine(ids, drafting=False)
    request_id, deltas = finish(served, Request(ids[:2], replace(GREEDY, stop=["e!"])))
    completion = served.take(request_id).outputs[0]
    assert (completion.text, completion.token_ids) == ("größ", [GROESSE, MARK])
    assert [delta.text for delta in deltas] == ["größ", ""]


FACE = spell("🤗".encode())
USER, EOS = 3, 2


@DRAFTING
@pytest.mark.parametrize(
    ("answer", "ends", "kept", "shown"),
    [
        # The answer up to the token that ends it, the stop tokens, and the text with that token's
        # own: special tokens left out, and special tokens shown.
        ([WORLD, MARK], {MARK}, " world!", " world!"),
        ([WORLD, GROESSE], {GROESSE}, " worldgröße", " worldgröße"),
        ([MARK], {MARK}, "!", "!"),
        ([WORLD, EOS], set(), " world", " world</s>"),
        ([WORLD, EOS], {EOS}, " world", " world</s>"),
        ([WORLD, USER], {USER}, " world", " world<|user|>"),
        ([WORLD, USER, MARK], {MARK}, " world!", " world<|user|>!"),
        ([WORLD, *FACE], {FACE[3]}, " world🤗", " world🤗"),
        ([WORLD, FACE[0], MARK], {MARK}, " world\ufffd!", " world\ufffd!"),
        ([WORLD, FACE[0]], {FACE[0]}, " world\ufffd", " world\ufffd"),
    ],
)
def test_the_text_of_an_end_token_is_kept_as_a_stop_string_is(
    answer: list[int], ends: set[int], kept: str, shown: str, drafting: bool
) -> None:
    """vLLM leaves the last token out if it is an end token and no stop text is to be kept."""
    prompt = [1, HELLO]
    for skip in (True, False):
        before = TOKENIZER.decode(prompt, skip_special=skip)
        for include in (True, False):
            params = replace(
                GREEDY,
                stop_token_ids=sorted(ends),
                skip_special_tokens=skip,
                include_stop_str_in_output=include,
            )
            served = engine([*prompt, *answer, AGAIN, AGAIN], drafting)
            request_id, deltas = finish(served, Request(prompt, params))
            completion = served.take(request_id).outputs[0]
            assert completion.token_ids == answer
            assert completion.finish_reason == "stop"
            assert completion.stop_reason == (answer[-1] if answer[-1] != EOS else None)
            taken = answer if include else answer[:-1]
            whole = TOKENIZER.decode([*prompt, *taken], skip_special=skip)
            assert completion.text == whole.removeprefix(before)
            if include:
                assert completion.text == (kept if skip else shown)
            assert "".join(delta.text for delta in deltas) == completion.text


@DRAFTING
@pytest.mark.parametrize(
    ("stop", "kept", "left_out"),
    [
        ("d!", (" world!", "d!"), (" world", MARK)),  # it ends with the token
        ("!", (" world!", "!"), (" world", MARK)),
        ("d!x", (" world!", MARK), (" world", MARK)),
        ("world", (" world", "world"), (" ", "world")),  # it came earlier
    ],
)
def test_a_stop_string_in_the_text_of_an_end_token(
    stop: str, kept: tuple[str, int | str], left_out: tuple[str, int | str], drafting: bool
) -> None:
    """As in vLLM it counts if that text is kept."""
    for include, right in ((True, kept), (False, left_out)):
        params = replace(
            GREEDY, stop=[stop], stop_token_ids=[MARK], include_stop_str_in_output=include
        )
        served = engine([1, HELLO, WORLD, MARK, AGAIN], drafting)
        request_id, _ = finish(served, Request([1, HELLO], params))
        completion = served.take(request_id).outputs[0]
        assert (completion.text, completion.stop_reason) == right


def test_a_stop_string_ends_inside_the_text_of_an_end_token() -> None:
    params = replace(GREEDY, stop=["aga"], stop_token_ids=[AGAIN], include_stop_str_in_output=True)
    served = engine([1, HELLO, WORLD, AGAIN, MARK], drafting=False)
    request_id, _ = finish(served, Request([1, HELLO], params))
    completion = served.take(request_id).outputs[0]
    assert (completion.text, completion.stop_reason) == (" world aga", "aga")
    assert completion.token_ids == [WORLD, AGAIN]
