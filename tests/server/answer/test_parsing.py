"""Reasoning and calls, found in text that arrives in any pieces."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.server.answer.call_forms import FORMS
from surefoot.server.answer.call_parser import CallParser
from surefoot.server.answer.channels import ChannelParser
from surefoot.server.answer.parsing import Chain, MessageDelta, Parser, ReasoningParser, whole_calls
from surefoot.server.answer.tool_calls import with_instructions

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "}\\"</tool_call>", "b": {}}}\n</tool_call>'
TEXTS = [
    "plain", "", "<think>why</think>\n\nbecause", "<thinking> is no tag", "\n<think>\nnever ends", "<thi",
    "a <think>later</think> is text", f"<think>x</think>\n{CALL}", f"First.\n{CALL}\n{CALL}", f"{CALL}\n\nThen this\n.",
    "cut <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", "cut <tool_call>\n{\"na", "cut <tool_ca",
]  # fmt: skip


def make(is_open: bool) -> Parser:
    return Chain(ReasoningParser(is_open), CallParser("call_"))


def deltas(text: str, cuts: list[int], is_open: bool) -> Iterator[MessageDelta]:
    """As a conversation yields them: what was held back comes with the last piece."""
    parser = make(is_open)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(places[:-1]):
        yield parser.feed(text[start:end])
    yield parser.feed(text[places[-2] :]) + parser.finish()


def parse(text: str, cuts: list[int], is_open: bool) -> tuple[str, str, Any]:
    total = MessageDelta()
    for delta in deltas(text, cuts, is_open):
        total += delta
    return total.content, total.reasoning, whole_calls(total.tool_calls)


@given(st.sampled_from(TEXTS), st.lists(st.integers(0, 120), max_size=40), st.booleans())
def test_cuts_do_not_show(text: str, cuts: list[int], is_open: bool) -> None:
    assert parse(text, cuts, is_open) == parse(text, [], is_open)


@given(st.sampled_from(TEXTS), st.lists(st.integers(0, 120), max_size=40), st.booleans())
def test_one_entry_for_each_call_and_event(text: str, cuts: list[int], is_open: bool) -> None:
    """However the text is cut, and put together by index as OpenAI's clients do it."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas(text, cuts, is_open):
        indices = [entry["index"] for entry in delta.tool_calls]
        assert indices == sorted(set(indices))
        for entry in delta.tool_calls:
            assert ("id" in entry) == (entry["index"] not in calls)
            call = calls.setdefault(entry["index"], {"id": entry.get("id"), "name": "", "arguments": ""})
            call["name"] += entry["function"].get("name", "")
            call["arguments"] += entry["function"]["arguments"]
    whole = [{"id": call["id"], **call["function"]} for call in parse(text, [], is_open)[2]]
    assert [calls[index] for index in range(len(calls))] == whole


@pytest.mark.parametrize(
    ("text", "is_open", "content", "reasoning"),
    [
        ("plain", False, "plain", ""),
        ("<think>why</think>\n\nbecause", False, "because", "why"),
        ("why</think>because", True, "because", "why"),
        ("why", True, "", "why"),
        ("<thinking> is no tag", False, "<thinking> is no tag", ""),
        ("a <think>later</think>", False, "a <think>later</think>", ""),
    ],
)
def test_reasoning(text: str, is_open: bool, content: str, reasoning: str) -> None:
    assert parse(text, [], is_open) == (content, reasoning, [])


def test_calls() -> None:
    content, reasoning, calls = parse(f"<think>x</think>\nFirst.\n{CALL}\n{CALL}", list(range(200)), False)
    assert (content, reasoning) == ("First.\n", "x")
    assert [call["id"] for call in calls] == ["call_0", "call_1"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"a": '}"</tool_call>', "b": {}}] * 2


def test_call_that_was_cut_off() -> None:
    (call,) = parse(TEXTS[10], [], False)[2]
    assert call["function"] == {"name": "f", "arguments": '{"a": 1'}


def test_conversation_for_a_template_without_tools() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "7", "tool_call_id": "1"},
    ]
    told = with_instructions(messages, [{"type": "function", "function": {"name": "f"}}])
    assert told[0]["content"].startswith("Be kind.\n\n# Tools")
    assert told[2]["content"] == '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    assert told[3] == {"role": "user", "content": "<tool_response>\n7\n</tool_response>"}
    assert with_instructions(messages[:2], []) == messages[:2]


CHANNELS = (
    "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant"
    "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
)


@pytest.mark.parametrize(
    ("rest", "content", "names"),
    [
        ("<|channel|>final<|message|>It is <b>.", "I look.It is <b>.", []),
        (' to=functions.f<|channel|>commentary json<|message|>{"a": "<|end|>"}', "I look.", ["f"]),
        ("<|channel|>fin", "I look.", []),
    ],
)
def test_channels(rest: str, content: str, names: list[str]) -> None:
    form = next(form for form in FORMS if form.in_channels)
    for cuts in ([], range(len(CHANNELS + rest))):
        parser, total = Chain(ChannelParser(), CallParser("call_", form=form)), MessageDelta()
        for start, end in pairwise([0, *cuts, len(CHANNELS + rest)]):
            total += parser.feed((CHANNELS + rest)[start:end])
        total += parser.finish()
        assert (total.reasoning, total.content) == ("Why?", content)
        assert [call["function"]["name"] for call in whole_calls(total.tool_calls)] == names
