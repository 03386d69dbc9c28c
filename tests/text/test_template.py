"""Chat templates: what Hugging Face's environment offers, and how failures read."""

from __future__ import annotations

from datetime import datetime

import pytest

from outrider.text.template import ChatTemplate
from outrider.types.errors import ModelError, RequestError

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]


def render(text: str, **variables: object) -> str:
    return ChatTemplate(text, "tiny", {"bos_token": "<s>"}).render(MESSAGES, **variables)


def test_blocks_are_trimmed_and_loop_controls_work() -> None:
    text = (
        "  {% for m in messages %}\n"
        "    {% if m.role == 'assistant' %}\n"
        "      {% break %}\n"
        "    {% endif %}\n"
        "{{ m.content }}\n"
        "  {% endfor %}\n"
        "{{ bos_token }}"
    )
    assert render(text) == "hi\n<s>"


def test_generation_marks_render_their_body() -> None:
    assert render("a{% generation %}{{ messages[1].content }}{% endgeneration %}b") == "ayob"


def test_json_is_not_escaped_for_html() -> None:
    assert render("{{ x | tojson }}", x={"a": "<é&'>"}) == '{"a": "<é&\'>"}'
    assert render("{{ x | tojson(indent=1) }}", x=[1]) == "[\n 1\n]"


def test_defaults_and_variables() -> None:
    text = "{{ tools is none }} {{ add_generation_prompt }} {{ documents is none }} {{ x }}"
    assert render(text, x=3) == "True True True 3"
    assert render("{{ strftime_now('%Y') }}") == datetime.now().strftime("%Y")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{{ raise_exception('Roles must\nalternate') }}", "Roles must alternate"),
        ("{{ messages[7].content }}", "has no element 7"),
        ("{{ messages + 1 }}", "can only concatenate list"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_failures_are_one_line(text: str, part: str) -> None:
    with pytest.raises(RequestError, match=r"^messages: the chat template says: ") as caught:
        render(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_template_that_is_not_jinja_is_a_model_error() -> None:
    with pytest.raises(ModelError, match=r"^tiny: chat template: .*'endfor'"):
        ChatTemplate("{% for m in messages %}x", "tiny", {})


PARTS = (
    "{% for m in messages %}{{ m.role }}:"
    "{% for part in m.content %}{{ part.text }}{% endfor %};{% endfor %}"
)
EITHER = "{% for m in messages %}{{ m.content if m.content is string else 'parts' }};{% endfor %}"


def test_a_template_that_shows_parts_alone_is_told_parts() -> None:
    """Over the characters of plain text it would find nothing, and the prompt would be empty."""
    assert render(PARTS) == "user:hi;assistant:yo;"
    assert render(EITHER) == "hi;yo;"


def test_a_template_that_shows_nothing_is_told_text() -> None:
    assert render("{{ messages[0].content is string }}") == "True"
    assert render("{{ raise_exception('no') if messages | length < 2 }}{{ messages[1].content }}")
