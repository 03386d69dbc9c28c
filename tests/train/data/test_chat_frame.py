"""What surrounds the turns of a conversation."""

from __future__ import annotations

import pytest

from outrider.train.data.chat_frame import (
    CATEGORIES,
    FREE,
    Opening,
    frame_of,
    with_prompts,
    with_turns,
)
from outrider.train.prompts.composer import Turn
from outrider.types.errors import DrafterError


class Letters:
    """A tokenizer of single characters with a template like ChatML."""

    def __init__(self, pattern: str = "<{role}>{content}|") -> None:
        self.pattern = pattern

    def encode(self, text, *, add_special):
        return [ord(c) for c in text]

    def render_chat(self, messages, **variables):
        return "!" + "".join(self.pattern.format(**m) for m in messages) + "<assistant>"


def test_frame_of_a_template(tmp_path):
    frame = frame_of(Letters(), [ord("|")])
    assert frame.prefix == tuple(map(ord, "!<user>"))
    assert frame.header == tuple(map(ord, "<assistant>"))
    assert frame.again == tuple(map(ord, "<user>"))
    assert frame.end == ord("|")
    assert frame.openers == ((FREE,),)
    openers = {name: [Turn(name, whole=True)] for name in CATEGORIES[1:]}
    taught = with_turns(frame, openers, [Turn("So", whole=False)], Letters())
    assert [len(turns) for turns in taught.openers] == [1] * len(CATEGORIES)
    assert taught.openers[1] == (Opening(tuple(map(ord, CATEGORIES[1])), whole=True),)
    assert taught.follow_ups == (FREE, Opening((83, 111), whole=False))
    (tmp_path / "prompts").write_text("Hi\n\nYou\n")
    given = with_prompts(frame, tmp_path / "prompts", Letters())
    you = Opening(tuple(map(ord, "You")), whole=True)
    assert given.openers == ((Opening((72, 105), whole=True), you),)
    (tmp_path / "prompts").write_text("\n")
    with pytest.raises(DrafterError, match="no prompt"):
        with_prompts(frame, tmp_path / "prompts", Letters())


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("<{role}>{content}", "end token"), ("<{role}>|", "as they are")],
)
def test_templates_that_do_not_fit(pattern, message):
    with pytest.raises(DrafterError, match=message):
        frame_of(Letters(pattern), [ord("|")])
