"""Calls that a model writes as plain JSON, in a code block or as all that it says."""

import json
from itertools import pairwise
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher

from surefoot.sampling.grammar import lark_grammar
from surefoot.server.answer.call_forms import HERMES
from surefoot.server.answer.call_grammar import CallableTool, call_rules
from surefoot.server.answer.call_parser import CallParser
from surefoot.server.answer.parsing import Chain, MessageDelta, ReasoningParser, whole_calls
from surefoot.server.answer.structured import AskedAnswer, make_grammar
from surefoot.server.schemas.base import MOST_GRAMMAR_CHARACTERS
from surefoot.server.schemas.tools import Function, Tool
from tests.server.answer.json_schemas import TOKENIZER

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [CallableTool("weather", SCHEMA), CallableTool("weather.v2", {"type": "object", "additionalProperties": False})]
NAMES = [tool.name for tool in TOOLS]
JUDGES = {tool.name: jsonschema_rs.Draft202012Validator(tool.schema) for tool in TOOLS}
GRAMMAR = LLMatcher(
    TOKENIZER, lark_grammar(f"start: answer\n{call_rules(HERMES, TOOLS, 'auto', True, TOOLS)}"), log_level=0
)

CALL = '{"name": "weather", "arguments": {"city": "} ```", "days": [1, 2]}}'
PRETTY = json.dumps(json.loads(CALL), indent=2)
DOUBLED = "{" + CALL + "}"
OTHER = '{"name": "weather.v2", "parameters": {} }'
MISFIT = '{"name": "weather", "arguments": {"town": "Paris"}}'
FRAGMENTS = [
    "Let me see.", "\n", " ", "<think>", "</think>", "```", "```json\n", "\n```", "json", "{", "}", '"name"', ": ",
    CALL, PRETTY, DOUBLED, OTHER, "{{", MISFIT, '{"name": "Bob", "age": 7}', '{"name": "weather"', "`", "<tool_ca",
    f"<tool_call>\n{CALL}\n</tool_call>", f"```json\n{PRETTY}\n```", f"```\n{OTHER}```", f"```{MISFIT}```",
    '{"name": "weather", "arguments":',
]  # fmt: skip
TEXT = st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)


def parse(text: str, cuts: list[int], plain: list[str] = NAMES) -> tuple[str, str, list[dict[str, Any]]]:
    parser, total = Chain(ReasoningParser(False), CallParser("call_", plain)), MessageDelta()
    for start, end in pairwise([0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]):
        total += parser.feed(text[start:end])
    total += parser.finish()
    return total.content, total.reasoning, whole_calls(total.tool_calls)


def is_allowed(text: str) -> bool:
    matcher, data = GRAMMAR.deep_copy(), text.encode()
    return matcher.try_consume_tokens(list(data)) == len(data) and matcher.is_accepting()


@given(TEXT, st.lists(st.integers(0, 300), max_size=60))
def test_cuts_of_plain_calls_do_not_show(text: str, cuts: list[int]) -> None:
    assert parse(text, cuts) == parse(text, [])
    assert parse(text, list(range(len(text)))) == parse(text, [])


@given(TEXT)
def test_what_is_read_as_a_call_fits_its_tool(text: str) -> None:
    """If the grammar lets the model write the text at all."""
    if not is_allowed(text):
        return
    for call in parse(text, [])[2]:
        function = call["function"]
        assert JUDGES[function["name"]].is_valid(json.loads(function["arguments"]))


@given(TEXT)
def test_text_without_calls_is_kept(text: str) -> None:
    content, reasoning, calls = parse(text, [])
    if not calls and not reasoning and "<t" not in text:
        assert content == text


@pytest.mark.parametrize(
    ("text", "content", "names"),
    [
        (f"```json\n{PRETTY}\n```", "", ["weather"]),
        (f"Sure:\n```json\n{CALL}\n```\nDone.", "Sure:\nDone.", ["weather"]),
        (f"```\n{OTHER}\n```", "", ["weather.v2"]),
        (CALL, "", ["weather"]),
        (DOUBLED, "", ["weather"]),
        (f"Sure:\n```json\n{DOUBLED}\n```", "Sure:\n", ["weather"]),
        (f"{DOUBLED}\n{OTHER}", "", ["weather", "weather.v2"]),
        (f"{PRETTY}\n{OTHER}", "", ["weather", "weather.v2"]),
        (f"<think>hm</think>\n{CALL}", "", ["weather"]),
        (f"<tool_call>\n{CALL}\n</tool_call>\n```json\n{OTHER}\n```", "", ["weather", "weather.v2"]),
        (f"As in {CALL}", f"As in {CALL}", []),
        ('```json\n{"name": "Bob", "age": 7}\n```', '```json\n{"name": "Bob", "age": 7}\n```', []),
        ("```python\nprint()\n```", "```python\nprint()\n```", []),
    ],
)
def test_plain_calls(text: str, content: str, names: list[str]) -> None:
    assert is_allowed(text)
    found, _, calls = parse(text, [])
    assert (found, [call["function"]["name"] for call in calls]) == (content, names)
    for call in calls:
        assert JUDGES[call["function"]["name"]].is_valid(json.loads(call["function"]["arguments"]))


@pytest.mark.parametrize(
    "text", [MISFIT, "{" + MISFIT + "}", DOUBLED[:-1], f"```json\n{MISFIT}\n```", f"Well:\n```\n{MISFIT}```"]
)
def test_call_that_does_not_fit_cannot_be_written(text: str) -> None:
    assert not is_allowed(text)


@pytest.mark.parametrize(
    ("choice", "num_tools", "has_plain"), [("auto", 2, True), ("required", 2, False), ("auto", 70, False)]
)
def test_plain_calls_only_where_the_grammar_holds_them(choice: Any, num_tools: int, has_plain: bool) -> None:
    """Not with a tool that must be called, which is tagged, nor where the grammar would grow too large."""
    properties = {f"property_{number}": {"type": "string"} for number in range(12)}
    functions = [
        Function(name=f"tool_{number}", parameters={"type": "object", "properties": properties})
        for number in range(num_tools)
    ]
    tools = [Tool(type="function", function=function) for function in functions]
    held = make_grammar(AskedAnswer(None, tools, choice, parallel=True))
    assert held.grammar is not None
    assert len(held.grammar) <= MOST_GRAMMAR_CHARACTERS
    assert bool(held.plain) == ("plain_0" in held.grammar) == has_plain
    assert parse(CALL, [], [])[0] == CALL
