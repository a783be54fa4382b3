"""The anthropic package."""

from anthropic import Anthropic
from common import ASK, ROOT, Weather

client = Anthropic(base_url=ROOT, api_key="none", max_retries=0, timeout=300)
GREEDY = {"model": "small", "messages": ASK, "max_tokens": 16, "extra_body": {"temperature": 0.0}}
TOOL = {"name": "Weather", "description": "The weather of a city.", "input_schema": Weather.model_json_schema()}


def test_message_whole_and_streamed() -> None:
    whole = client.messages.create(**GREEDY).content[0].text
    with client.messages.stream(**GREEDY) as stream:
        assert "".join(stream.text_stream) == whole


def test_tools() -> None:
    ask = {**GREEDY, "max_tokens": 80, "tools": [TOOL], "tool_choice": {"type": "any"}}
    with client.messages.stream(**ask) as stream:
        reply = stream.get_final_message()
    Weather.model_validate(reply.content[0].input)
    assert reply.stop_reason == "tool_use"


def test_prefill_and_counting() -> None:
    begun = [*ASK, {"role": "assistant", "content": "The three colours are"}]
    assert client.messages.create(**{**GREEDY, "messages": begun}).content[0].text
    assert client.messages.count_tokens(model="small", messages=ASK).input_tokens > 5
