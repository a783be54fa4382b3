"""Anthropic's client."""

import anthropic
import pytest
from anthropic import Anthropic

from tests.server.answer.structured import IN_PARIS
from tests.server.process import Server
from tests.server.routes.messages import TOOL


@pytest.fixture(scope="module")
def claude(server: Server) -> Anthropic:
    return Anthropic(base_url=server.root, api_key="none", max_retries=0, timeout=300)


def test_whole_and_streamed(claude: Anthropic) -> None:
    ask = {
        "model": "small", "max_tokens": 24, "extra_body": {"temperature": 0.0}, "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Name three colours."}]}],
    }  # fmt: skip
    whole = claude.messages.create(**ask)
    assert whole.role == "assistant"
    assert whole.stop_reason in ("end_turn", "max_tokens")
    with claude.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        final = stream.get_final_message()
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = claude.messages.count_tokens(model="small", messages=ask["messages"], system="Be brief.")
    assert counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens


def test_stop_sequence(claude: Anthropic) -> None:
    ask = {"model": "small", "max_tokens": 24, "extra_body": {"temperature": 0.0}, "messages": IN_PARIS}
    whole = claude.messages.create(**ask).content[0].text
    word = whole.split()[2]
    stopped = claude.messages.create(**ask, stop_sequences=[word])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)
    assert stopped.content[0].text == whole[: whole.index(word)]


def test_tool(claude: Anthropic) -> None:
    choice = {"type": "tool", "name": "get_weather"}
    ask = {"model": "small", "max_tokens": 60, "messages": IN_PARIS, "tools": [TOOL], "tool_choice": choice}
    whole = claude.messages.create(**ask, extra_body={"temperature": 0.0})
    assert whole.stop_reason == "tool_use"
    (call,) = whole.content
    assert set(call.input) == {"city", "unit"}
    with claude.messages.stream(**ask, extra_body={"temperature": 0.0}) as stream:
        assert stream.get_final_message().content[0].input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    said = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
    messages = [*IN_PARIS, {"role": "assistant", "content": [said]}, {"role": "user", "content": [result]}]
    after = claude.messages.create(model="small", max_tokens=8, messages=messages, tools=[TOOL])
    assert after.content


def test_errors_in_its_own_shape(claude: Anthropic) -> None:
    message = [{"role": "user", "content": "a"}]
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(model="small", max_tokens=0, messages=message)
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="claude", max_tokens=1, messages=message)
    choice = {"type": "tool", "name": "other"}
    with pytest.raises(anthropic.BadRequestError, match="there is no tool"):
        claude.messages.create(model="small", max_tokens=1, messages=message, tools=[TOOL], tool_choice=choice)


def test_last_message_of_the_assistant_is_gone_on_with(claude: Anthropic) -> None:
    """The same tokens as if the model had said it itself, spaces included."""
    ask = {"model": "small", "max_tokens": 24, "extra_body": {"temperature": 0.0}}
    question = {"role": "user", "content": "Name three colours."}
    whole = claude.messages.create(**ask, messages=[question]).content[0].text
    for cut in (whole.index(" "), len(whole) // 2):
        begun = whole[:cut].rstrip()
        messages = [question, {"role": "assistant", "content": [{"type": "text", "text": begun}]}]
        rest = claude.messages.create(**ask, messages=messages).content[0].text
        assert rest.startswith(whole[len(begun) :][:4])
        assert rest != whole
        with claude.messages.stream(**ask, messages=messages) as stream:
            assert "".join(stream.text_stream) == rest
