"""A tiny model calls tools in the form of every family: all calls fit, streamed or not, and come back as they went."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from surefoot.api import LLM
from surefoot.core import SamplingParams
from surefoot.server.answer.call_parser import CallParser
from surefoot.server.answer.channels import ChannelParser
from surefoot.server.answer.parsing import Chain, Parser, whole_calls
from surefoot.server.answer.structured import AnswerConstraint, AskedAnswer, make_grammar
from surefoot.server.answer.tool_calls import ModelCalls
from surefoot.server.schemas.tools import Tool
from surefoot.text import ChatTemplate
from tests.server.answer.call_templates import CONTROL, TEMPLATES
from tests.server.process import Server
from tests.stories import stories_gguf

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "is_long": {"type": "boolean"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "words": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2},
    },
    "required": ["city", "unit"], "additionalProperties": False,
}  # fmt: skip
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "get_weather", "description": "Of a city.", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
]
JUDGES = {
    "get_weather": jsonschema_rs.Draft202012Validator(PARAMETERS),
    "get_time": jsonschema_rs.Draft202012Validator({"type": "object", "maxProperties": 0}),
}
ASKED = [{"role": "user", "content": "Hi"}]
MOST_TOKENS = 320


def check(calls: list[dict[str, Any]]) -> None:
    for call in calls:
        given = json.loads(call["function"]["arguments"])
        assert JUDGES[call["function"]["name"]].is_valid(given), given


def parser_of(held: AnswerConstraint) -> Parser:
    calls = CallParser("call_", held.plain, held.calls.form, held.tools)
    return Chain(ChannelParser(), calls) if held.calls.in_channels else calls


def valid_calls(name: str, count: int) -> None:
    """That many answers of the model in this form, each with one call."""
    template = ChatTemplate(TEMPLATES[name])
    llm = LLM(stories_gguf(*CONTROL.get(name, ())), threads=1, speculate="off")
    special = {llm.tokenizer.text_of(token): token for token in llm.tokenizer.special}
    calls = ModelCalls.find(template.templates, template.render, special)
    assert calls.form.name == name
    assert set(CONTROL.get(name, ())) <= {*calls.special, "<|call|>", "<|return|>"}
    held = make_grammar(AskedAnswer(None, [Tool.model_validate(tool) for tool in TOOLS], "required", calls=calls))
    params = [
        SamplingParams(
            temperature=1.2, seed=seed, max_tokens=MOST_TOKENS, grammar=held.grammar, skip_special_tokens=False
        )
        for seed in range(count)
    ]
    outputs = llm.generate(["Once upon a time"] * count, params)
    llm.close()
    template.close()
    names = [tool.name for tool in held.tools]
    for output in outputs:
        (answer,) = output.outputs
        assert answer.finish_reason == "stop", answer.text
        whole, pieces = (parser_of(held) for _ in range(2))
        delta = whole.feed(answer.text) + whole.finish()
        found = whole_calls(delta.tool_calls)
        assert len(found) == 1, answer.text
        assert not delta.content or calls.in_channels
        assert found[0]["function"]["name"] in names
        check(found)
        deltas = [pieces.feed(character) for character in answer.text]
        assert whole_calls([call for piece in deltas for call in piece.tool_calls]) == found


@pytest.mark.parametrize("name", TEMPLATES)
def test_all_calls_fit(name: str) -> None:
    valid_calls(name, 20)


@pytest.mark.nightly
@pytest.mark.parametrize("name", TEMPLATES)
def test_two_hundred_calls_fit(name: str) -> None:
    valid_calls(name, 200)


# ---- through the server ----

SERVED = ["qwen xml", "mistral with ids", "gemma", "granite", "llama", "harmony"]


@pytest.fixture(scope="module", params=SERVED)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file: Path = tmp_path_factory.mktemp("template") / "template.jinja"
    file.write_text(TEMPLATES[request.param])
    made = Server(stories_gguf(*CONTROL.get(request.param, ())), "--threads", "1", "--chat-template", str(file))
    yield made
    made.stop()


def ask(server: Server, seed: int, **more: Any) -> dict[str, Any]:
    body = {
        "model": "small", "messages": ASKED, "tools": TOOLS, "tool_choice": "required", "temperature": 1.2,
        "max_tokens": MOST_TOKENS, "seed": seed, "parallel_tool_calls": False, **more,
    }  # fmt: skip
    reply = httpx.post(f"{server.url}/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    if not more.get("stream"):
        whole: dict[str, Any] = reply.json()["choices"][0]
        return whole
    chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    entries = [entry for chunk in chunks for entry in chunk["choices"][0]["delta"].get("tool_calls", ())]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    return {"message": {"content": None, "tool_calls": whole_calls(entries)}, "finish_reason": reasons[-1]}


def prompt(server: Server, messages: list[dict[str, Any]]) -> list[str]:
    """The texts of its tokens."""
    body = {"messages": messages, "tools": TOOLS, "return_token_strs": True}
    reply = httpx.post(f"{server.root}/tokenize", json=body)
    assert reply.status_code == 200, reply.text
    texts: list[str] = reply.json()["token_strs"]
    return texts


def named(calls: list[dict[str, Any]]) -> list[Any]:
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def test_streamed_calls_are_the_whole_and_come_back_as_they_went(
    served: Server, request: pytest.FixtureRequest
) -> None:
    """The conversation's next prompt goes on from what the model wrote, so that all of it stays cached."""
    begin = "".join(prompt(served, ASKED))
    control = CONTROL.get(request.node.callspec.params["served"], ())[:1]
    for seed in range(4):
        whole = ask(served, seed, return_token_ids=True)
        message = whole["message"]
        assert whole["finish_reason"] == "tool_calls"
        assert message["content"] is None
        check(message["tool_calls"])
        assert named(ask(served, seed, stream=True)["message"]["tool_calls"]) == named(message["tool_calls"])
        written = httpx.post(f"{served.root}/detokenize", json={"tokens": whole["token_ids"][:-1]}).json()["prompt"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "21"}
        tokens = prompt(served, [*ASKED, message, result])
        later = "".join(tokens)
        assert set(control) <= {*tokens}  # special tokens, not their text
        # This tokenizer writes a space after each special token.
        assert later.replace(" ", "").startswith((begin + written).replace(" ", "")), (begin + written, later)


def test_a_free_answer_may_call(served: Server) -> None:
    for seed in range(3):
        choice = ask(served, seed, tool_choice="auto", max_tokens=40)
        check([call for call in choice["message"].get("tool_calls", ()) if choice["finish_reason"] == "tool_calls"])


def test_several_calls_of_another_model_in_the_history(served: Server) -> None:
    """Also for a template that takes one call in a message, or short ids."""
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
        for number in range(2)
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": f"at {call['id']}"} for call in calls]
    text = "".join(prompt(served, [*ASKED, {"role": "assistant", "content": "", "tool_calls": calls}, *results]))
    assert text.count("get_time") == 3  # once among the tools
    assert text.index("at call_0") < text.index("at call_1")
