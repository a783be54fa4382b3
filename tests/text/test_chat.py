"""Chat templates render the same text as in transformers, and malicious templates do no harm."""

import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from surefoot.text import (
    ChatTemplate,
    ChatTemplateError,
    TemplateLimits,
    chat_template_from_folder,
    chat_template_from_gguf,
    tokenizer_from_gguf,
)
from tests.text import small
from tests.text.references import gguf_metadata, model_file, need, peer_templates, tokenizer_folder
from tests.text.templates import CHATML, CONVERSATIONS, FAMILIES, GEMMA, LLAMA3, TOKENS, TOOLS

Messages = list[dict[str, Any]]
_ASKED: Messages = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatTemplate]:
    """A renderer that all tests of small templates share."""
    template = ChatTemplate(FAMILIES, TOKENS)
    yield template
    template.close()


def _reference(source: str, messages: Messages, tokens: dict[str, Any], **options: Any) -> str | None:
    """The text that transformers renders; None if it or the template raises an error."""
    from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415

    try:
        rendered, _ = render_jinja_template([messages], chat_template=source, **tokens, **options)
    except Exception:
        return None
    return str(rendered[0])


def _rendered(template: ChatTemplate, messages: Messages, **options: Any) -> str | None:
    try:
        return template.render(messages, **options)
    except ValueError:
        return None


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"add_generation_prompt": False},
    {"tools": TOOLS},
    {"add_generation_prompt": False, "continue_final_message": True},
    {"enable_thinking": False, "date_string": "1 Jan 2025"},
)


def _both(template: ChatTemplate, source: str) -> Iterator[tuple[str, str | None, str | None]]:
    """The text of each conversation, here and in transformers, with a name."""
    for name, messages in CONVERSATIONS.items():
        for options in OPTIONS:
            with_defaults = {"add_generation_prompt": True, **options}
            expected = _reference(source, messages, template.tokens, **with_defaults)
            yield f"{name} {options}", _rendered(template, messages, **options), expected


def _compare(template: ChatTemplate, source: str) -> int:
    """Asserts that all conversations render as in transformers. Returns the number of rendered conversations."""
    num_rendered = 0
    for name, ours, expected in _both(template, source):
        assert ours == expected, name
        num_rendered += expected is not None
    return num_rendered


@pytest.mark.reference
@pytest.mark.parametrize("family", FAMILIES)
def test_families_as_transformers(family: str, chat: ChatTemplate) -> None:
    need("transformers")
    chat.templates["default"] = FAMILIES[family]
    assert _compare(chat, FAMILIES[family]) >= 25


@pytest.mark.reference
@pytest.mark.parametrize("name", ["smollm2", "qwen", "tinyllama"])
def test_templates_in_gguf_as_transformers(name: str) -> None:
    need("transformers")
    metadata = gguf_metadata(model_file(name))
    template = chat_template_from_gguf(metadata, tokenizer_from_gguf(metadata))
    assert template.tokens["eos_token"] in ("<|im_end|>", "</s>")
    assert _compare(template, metadata["tokenizer.chat_template"]) >= 25


@pytest.mark.reference
@pytest.mark.parametrize("name", ["llama3_2", "qwen2_5", "qwen3", "gemma3", "mistral_nemo", "deepseek_v3"])
def test_chat_templates_render_as_in_transformers(name: str) -> None:
    need("transformers")
    template = chat_template_from_folder(tokenizer_folder(name))
    assert _compare(template, template.templates["default"]) >= 10


@pytest.mark.reference
@pytest.mark.nightly
def test_llama_cpps_collection_renders_as_in_transformers() -> None:
    need("transformers")
    sources, differ, num_rendered = peer_templates(), dict[str, list[str]](), 0
    for name, source in sources.items():
        template = ChatTemplate(source, TOKENS)
        pairs = list(_both(template, source))
        template.close()
        num_rendered += sum(expected is not None for _, _, expected in pairs)
        if cases := [case for case, ours, expected in pairs if ours != expected]:
            differ[name] = cases
    assert len(sources) > 70
    assert num_rendered > 2000
    assert differ == {}


def test_prompt_of_llama3(chat: ChatTemplate) -> None:
    chat.templates["default"] = LLAMA3
    assert chat.render([{"role": "user", "content": " Hi "}], date_string="today") == (
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday: today\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_tool_arguments_may_be_text(chat: ChatTemplate) -> None:
    """OpenAI's clients send arguments as text; text that is not JSON is unchanged."""
    chat.templates["default"] = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    for sent, expected in (('{"a": 1}', '{"a": 1}'), ("{", '"{"'), ({"a": 1}, '{"a": 1}')):
        call = {"function": {"name": "f", "arguments": sent}}
        assert chat.render([{"role": "assistant", "content": None, "tool_calls": [call]}]) == expected


def test_content_may_be_a_list_of_parts(chat: ChatTemplate) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    image = [{"type": "image", "image": "x"}]
    chat.templates["default"] = CHATML
    assert "user\none\ntwo<|im_end|>" in chat.render([{"role": "user", "content": parts}])
    with pytest.raises(ChatTemplateError, match="text only"):
        chat.render([{"role": "user", "content": image}])
    chat.templates["default"] = GEMMA
    assert "user\nonetwo<start_of_image><end_of_turn>" in chat.render([{"role": "user", "content": parts + image}])


def test_tool_use_template(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        '{"chat_template": [{"name": "default", "template": "d{{ bos_token }}"}, {"name": "tool_use", "template": "t"}]'
        ', "bos_token": {"content": "<b>"}, "eos_token": null}'
    )
    template = chat_template_from_folder(tmp_path)
    assert template.render(_ASKED) == "d<b>"
    assert template.render(_ASKED, tools=TOOLS) == "t"
    (tmp_path / "chat_template.jinja").write_text("file")
    template.close()
    assert chat_template_from_folder(tmp_path).render(_ASKED) == "file"


def test_a_missing_template_is_reported() -> None:
    tokenizer = tokenizer_from_gguf(small.byte_level([]))
    with pytest.raises(ChatTemplateError, match="no chat template"):
        chat_template_from_gguf({}, tokenizer).render(_ASKED)


def test_wrong_use_is_refused(chat: ChatTemplate) -> None:
    chat.templates["default"] = CHATML
    with pytest.raises(ValueError, match="add_generation_prompt=False"):
        chat.render(_ASKED, continue_final_message=True)
    with pytest.raises(ValueError, match="last message"):
        chat.render([], add_generation_prompt=False, continue_final_message=True)
    with pytest.raises(ValueError, match="plain data"):
        chat.render([{"role": "user", "content": object()}])
    with pytest.raises(ChatTemplateError, match="check the messages"):
        chat.render([{"role": "user"}])
    chat.templates["default"] = "nothing of it"
    with pytest.raises(ChatTemplateError, match="cannot be continued"):
        chat.render(_ASKED, add_generation_prompt=False, continue_final_message=True)


_DEEP = "{% set x = [1] %}{% set y = [1] %}" + "{% set x = [x, x] %}{% set y = [y, y] %}" * 60
HOSTILE = {
    "class of a string": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    "attribute by map": ("{{ [''] | map(attribute='__class__') | list | first | attr('mro') }}", "unsafe"),
    "globals": ("{{ cycler.__init__.__globals__ }}", "unsafe"),
    "globals of a function": ("{{ raise_exception.__globals__['sys'] }}", "unsafe"),
    "changes messages": ("{{ messages.append(messages) }}", "unsafe"),
    "names in a namespace": ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "may not have"),
    "includes a file": ("{% include '/etc/passwd' %}", "failed"),
    "imports": ("{% import 'os' as os %}", "failed"),
    "huge range": ("{% for i in range(1000000000) %}x{% endfor %}", "Range too big"),
    "nested loops": ("{% for i in range(99999) %}" * 4 + "{% endfor %}" * 4, "took more than"),
    "nested loops with text": ("{% for i in range(99999) %}" * 3 + "xxxx" + "{% endfor %}" * 3, "writes more than"),
    "recursion": ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "calls itself"),
    "recursion that branches": ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
                                "{{ f(60) }}", "took more than"),
    "long text": ("{{ 'x' * 20000000 }}", "writes more than"),
    "huge text": ("{% set n = messages | length * 10 ** 12 %}{{ 'x' * n }}", "memory"),
    "doubling": ("{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
                 "memory"),
    "padding": ("{{ 'x' | center(100000000000) }}", "memory"),
    "huge number": ("{% set n = messages | length + 8 %}{{ n ** (n ** (n ** n)) }}", "took more than|memory"),
    "comparison of deep lists": (_DEEP + "{{ x == y }}", "took more than"),
    "deep lists as text": (_DEEP + "{{ x }}", "took more than|memory"),
    "deep expression": ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "memory|calls itself|program fail"),
    "too long itself": ("x" * 300_000, "unreasonably long"),
    "not Jinja": ("line\n{% if %}", "line 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_are_refused_in_time(name: str) -> None:
    source, message = HOSTILE[name]
    # Only where the time is to run out may it be short.
    seconds = 1.0 if "took more than" in message else 15.0
    limits = TemplateLimits(seconds=seconds, memory_bytes=1 << 28, output_characters=1 << 16)
    with pytest.raises(ChatTemplateError, match=message):
        ChatTemplate(source, limits=limits).render(_ASKED)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages | attr('__class__') | attr('__base__') }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ self._TemplateReference__context }}",
    ],
)
def test_unsafe_expressions_render_as_nothing(source: str, chat: ChatTemplate) -> None:
    chat.templates["default"] = source
    assert chat.render(_ASKED) == ""


def test_continues_after_a_kill() -> None:
    template = ChatTemplate(
        {"default": CHATML, "tool_use": HOSTILE["nested loops"][0]}, limits=TemplateLimits(seconds=2.0)
    )
    expected = template.render(_ASKED)
    for _ in range(2):
        with pytest.raises(ChatTemplateError, match="took more than"):
            template.render(_ASKED, tools=[])
        assert template.render(_ASKED) == expected
    template.close()
    assert template.render(_ASKED) == expected


def _program(template: ChatTemplate) -> int:
    assert template._renderer._running is not None
    return template._renderer._running._process.pid


def test_leaves_no_process_behind() -> None:
    template = ChatTemplate(CHATML)
    template.render(_ASKED)
    process = _program(template)
    os.kill(process, 0)
    del template
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_from_many_threads(chat: ChatTemplate) -> None:
    chat.templates["default"] = CHATML
    with ThreadPoolExecutor(8) as pool:
        asked = [[{"role": "user", "content": f"{number} " * 5000}] for number in range(40)]
        for messages, text in zip(asked, pool.map(chat.render, asked), strict=True):
            assert messages[0]["content"] in text


def test_secrets_are_not_passed_to_the_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_SECRET", "swordfish")
    template = ChatTemplate(CHATML)
    template.render(_ASKED)
    environment = Path(f"/proc/{_program(template)}/environ").read_bytes()
    assert b"swordfish" not in environment
    assert b"PYTHONPATH=" in environment


def test_the_program_can_be_started_before_the_first_conversation() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    template.start()
    started = template._renderer._running
    assert started is not None
    assert template.render([{"role": "user", "content": "a"}]) == "a"
    assert template._renderer._running is started
    template.close()
    without = ChatTemplate({})
    without.start()
    assert without._renderer._running is None


def test_the_time_is_given_and_the_machines_zone_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    clock = ChatTemplate("{% if strftime_now is defined %}{{ strftime_now('%Y-%m-%d %H:%M %Z') }}{% endif %}")
    assert clock.render([], now=datetime(2026, 11, 18, 23, 5, tzinfo=UTC)) == "2026-11-18 23:05 UTC"
    before = datetime.now(UTC)
    printed = clock.render([])
    assert f"{before:%Y-%m-%d %H:%M} UTC" <= printed <= f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    clock.close()
