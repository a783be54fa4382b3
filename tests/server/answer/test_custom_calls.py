"""Input of custom tools: grammars for the text inside of a JSON string, and the text taken out of it again."""

import json
from itertools import pairwise
from typing import Any

import llguidance
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.sampling.grammar import json_rule, lark_grammar
from surefoot.server.answer.call_forms import FORMS
from surefoot.server.answer.call_parser import CallParser
from surefoot.server.answer.custom_calls import CustomInputs, StringReader, as_openai
from surefoot.server.answer.input_regex import input_pattern
from surefoot.server.answer.parsing import MessageDelta, whole_calls
from surefoot.server.answer.structured import AskedAnswer, make_grammar
from surefoot.server.answer.tool_calls import ModelCalls
from surefoot.server.schemas.tools import CustomTool, InputGrammar, NamedChoice, input_schema

EDITS = r"""
start: head edit+ foot  // a note
head: "BEGIN" LF
foot: "END" LF?
edit: ("in " | "of ") name LF line+ -> edited
name: /(.+)/
line: ("+" | "-" | " ") /(.*)/ LF
%import common.LF
"""
GOOD = 'BEGIN\nin a "b" \\ é\n+\tx = "\\n"\n-\nof c\n y\nEND\n'
BAD = ["", "BEGIN\nEND\n", GOOD.replace("BEGIN", "BEGUN"), GOOD.replace("+", "*"), GOOD + "x"]


class _Bytes:
    """A vocabulary of single bytes."""

    eos_token_id, bos_token_id = 256, None
    tokens = [*(bytes([value]) for value in range(256)), b"<end>"]  # noqa: RUF012
    special_token_ids = [256]  # noqa: RUF012

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


BYTES = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))


def accepts(grammar: str, text: str) -> bool:
    matcher, tokens = llguidance.LLMatcher(BYTES, grammar, log_level=0), list(text.encode())
    assert not matcher.is_error(), matcher.get_error()
    return matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()


def escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def holding(definition: str, syntax: str = "lark") -> str:
    """The grammar of a JSON object whose only value is held."""
    pattern = input_pattern(InputGrammar.model_validate({"syntax": syntax, "definition": definition}))
    return lark_grammar(f"start: {json_rule({**input_schema(pattern=pattern), 'additionalProperties': False})}")


def argument(text: str) -> str:
    return f'{{"input": "{text}"}}'


def test_a_grammar_holds_the_escaped_text() -> None:
    held = holding(EDITS)
    assert accepts(EDITS, GOOD)
    assert accepts(held, argument(escaped(GOOD)))
    for text in BAD:
        assert not accepts(EDITS, text)
        assert not accepts(held, argument(escaped(text))), text
    assert not accepts(held, argument(GOOD))


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('start: "a.b"i ["-" | "+"] end~2\nend: /x/s', "A.B+xx", "aXb+xx"),
        ('start: a{2,3}\n?a: /[^"]\\/?/ "\\n"', "a/\nb\n", "a/\n"),
        ("start: /[!-~]/", '"', "é"),
        ("start: WORD (WS_INLINE WORD)*\n%import common.WORD\n%import common.WS_INLINE", "a bc", "a  "),
    ],
)
def test_what_a_grammar_may_hold(grammar: str, good: str, bad: str) -> None:
    assert accepts(holding(grammar), argument(escaped(good)))
    assert not accepts(holding(grammar), argument(escaped(bad)))


@pytest.mark.parametrize(
    ("regex", "good", "bad"),
    [
        (r"[a-z]+\.py", "abc.py", "abc_py"),
        (r'"[^"\n]*"\s\S+', '"a b"\nc\\d', '"a\nb" c'),
        (r'a/b[\]"]x?', 'a/b"', "a/bb"),
        (r"(?:ab|\t)*", "ab\tab", "abc"),
        (r"[^a]b", '"b', "ab"),
        (r"[\s,]{2}", ",\n", ",."),
        (r"^(?P<year>\d{4})$", "2026", "26"),
    ],
)
def test_a_regex_holds_the_escaped_text(regex: str, good: str, bad: str) -> None:
    held = holding(regex, "regex")
    assert accepts(held, argument(escaped(good)))
    assert not accepts(held, argument(escaped(bad)))


@pytest.mark.parametrize(
    "grammar",
    [
        "start: /a(?=b)/", "%ignore /x/\nstart: /a/", "start: /a/x", 'start: "a" start?', "start: missing",
        "start: NUMBER\n%import common.NUMBER", 'start: "a" & /b/', "rule: /a/",
        "start: /a/\nstart: /b/", "/a/\nstart: /b/",
        "start: r0\n" + "\n".join(f"r{n}: r{n + 1}" for n in range(5000)),
        'start: r0\nr20: "a"\n' + "\n".join(f"r{n}: r{n + 1} r{n + 1} r{n + 1}" for n in range(20)),
    ],
)  # fmt: skip
def test_what_cannot_be_rewritten_is_said(grammar: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        holding(grammar)


def tool(definition: str) -> Any:
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": definition}}
    return CustomTool.model_validate({"type": "custom", "custom": {"name": "edit", "format": form}}).as_function()


def test_calls_are_held_to_the_grammar() -> None:
    chosen = NamedChoice.model_validate({"type": "function", "function": {"name": "edit"}})
    held = make_grammar(AskedAnswer(None, [tool(EDITS)], chosen))
    assert held.grammar is not None
    assert held.notices == ()
    call = '<tool_call>\n{{"name": "edit", "arguments": {{"input": "{}"}}}}\n</tool_call>'
    assert accepts(held.grammar, call.format(escaped(GOOD)))
    assert not any(accepts(held.grammar, call.format(escaped(text))) for text in BAD)
    free = make_grammar(AskedAnswer(None, [tool('start: "a" start?')], chosen))
    assert free.grammar is not None
    assert free.notices == ("tools: the grammar of a custom tool is not enforced",)
    assert accepts(free.grammar, call.format(escaped(GOOD)))


def test_calls_without_json_are_held_to_the_grammar() -> None:
    form = next(form for form in FORMS if form.name == "qwen xml")
    held = make_grammar(AskedAnswer(None, [tool(EDITS)], "required", calls=ModelCalls(form, is_native=True)))
    assert held.grammar is not None
    assert held.notices == ()
    for text in (GOOD, *BAD):
        call = form.write_calls([{"name": "edit", "id": "1", "arguments": {"input": text}}])
        assert accepts(held.grammar, call) == (text == GOOD), text


@given(st.text(max_size=30), st.lists(st.integers(0, 200), max_size=30), st.booleans())
def test_cuts_do_not_show(text: str, cuts: list[int], as_ascii: bool) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=as_ascii)
    reader, places = StringReader(), [0, *sorted(min(cut, len(arguments)) for cut in cuts), len(arguments)]
    assert "".join(reader.feed(arguments[start:end]) for start, end in pairwise(places)) == text


def test_calls_of_custom_tools_have_their_own_form() -> None:
    calls = CustomInputs(CallParser("call_"), {"edit"})
    text = '<tool_call>\n{"name": "edit", "arguments": {"input": "a\\n\\"b"}}\n</tool_call>'
    text += '<tool_call>\n{"name": "f", "arguments": {"input": "a"}}\n</tool_call>'
    delta = MessageDelta()
    for letter in text:
        delta += calls.feed(letter)
    first, second = map(as_openai, whole_calls(delta.tool_calls))
    assert first == {"id": "call_0", "type": "custom", "custom": {"name": "edit", "input": 'a\n"b'}}
    assert second == {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"input": "a"}'}}
