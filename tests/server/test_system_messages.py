"""System messages in any place, by templates that allow them there or not."""

from typing import Any

import pytest

from surefoot.server.system_messages import SystemPlaces, placed
from surefoot.text import TEMPLATE_NAMES, ChatTemplate, ChatTemplateError
from surefoot.text.named_templates import find_template

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
STRICT = """{% for message in messages %}{% if message.role == 'system' and not loop.first %}
{{ raise_exception('System message must be at the beginning') }}{% endif %}[{{ message.role }}]{{ message.content }}
{% endfor %}"""
IN_FRONT = """{% for message in messages if message.role == 'system' %}{{ message.content }}{% endfor %}
{% for message in messages if message.role != 'system' %}[{{ message.role }}]{{ message.content }}{% endfor %}"""


def talk(*said: str) -> list[dict[str, Any]]:
    """A letter for the role, then the text."""
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return [{"role": roles[word[0]], "content": word[1:]} for word in said]


def probe(source: str) -> SystemPlaces:
    template = ChatTemplate(source, TOKENS)
    try:
        return SystemPlaces.probe(template.render)
    finally:
        template.close()


def test_what_templates_do() -> None:
    assert probe(find_template("chatml")) == SystemPlaces(first=True, late=True)
    assert probe(STRICT) == SystemPlaces(first=True, late=False)
    assert probe(IN_FRONT) == SystemPlaces(first=True, late=False)
    assert probe("{% for message in messages %}{% if message.role == 'user' %}{{ message.content }}{% endif %}"
                 "{% endfor %}") == SystemPlaces(first=False, late=False)  # fmt: skip


def test_where_they_go() -> None:
    said = talk("sA", "sB", "uC", "sD", "aE", "sF", "uG", "tH", "sI")
    everywhere, first, nowhere = SystemPlaces(True, True), SystemPlaces(True, False), SystemPlaces(False, False)
    assert placed(said, everywhere) == said
    d, f, i = (f"<system>\n{letter}\n</system>" for letter in "DFI")
    rest = [f"uC\n\n{d}", "aE", f"u{f}\n\nG", "tH", f"u{i}"]
    assert placed(said, first) == talk("sA\n\nB", *rest)
    a, b = (f"<system>\n{letter}\n</system>" for letter in "AB")
    assert placed(said, nowhere) == talk(f"u{a}\n\n{b}\n\nC\n\n{d}", *rest[1:])
    assert placed(talk("uA", "uB"), first) == talk("uA", "uB"), "a user's own messages stay apart"


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_no_common_template_refuses_an_agent(name: str) -> None:
    template = ChatTemplate(find_template(name), TOKENS)
    try:
        places = SystemPlaces.probe(template.render)
        said = talk("sbe brief", "uhello", "sa note", "ahi", "uagain", "sanother note")
        text = template.render(placed(said, places))
        found = [text.index(words) for words in ("be brief", "hello", "a note", "hi", "again", "another note")]
        assert found == sorted(found)
        grown = template.render(placed([*said, *talk("ayes", "smore")], places), add_generation_prompt=False)
        assert grown.startswith(template.render(placed(said, places), add_generation_prompt=False).rstrip()[:-8])
    except ChatTemplateError as error:
        pytest.fail(str(error))
    finally:
        template.close()
