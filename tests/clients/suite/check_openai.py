"""The openai package."""

from common import ASK, TOOL, URL, Person, Weather
from openai import OpenAI

client = OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=300)
GREEDY = {"model": "small", "messages": ASK, "temperature": 0, "max_tokens": 16}


def test_chat_whole_and_streamed() -> None:
    whole = client.chat.completions.create(**GREEDY)
    streamed = client.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True})
    chunks = list(streamed)
    assert (
        "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        == whole.choices[0].message.content
    )
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_structured() -> None:
    reply = client.chat.completions.parse(model="small", messages=ASK, response_format=Person, max_tokens=80, seed=1)
    assert isinstance(reply.choices[0].message.parsed, Person)


def test_tools() -> None:
    reply = client.chat.completions.create(
        model="small",
        messages=ASK,
        tools=[TOOL],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=80,
        seed=1,
    )
    (call,) = reply.choices[0].message.tool_calls
    Weather.model_validate_json(call.function.arguments)
    assert reply.choices[0].finish_reason == "tool_calls"


def test_responses() -> None:
    ask = {"model": "small", "input": "Name three colours.", "temperature": 0, "max_output_tokens": 16}
    whole = client.responses.create(**ask)
    with client.responses.stream(**ask) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert text == whole.output_text
    parsed = client.responses.parse(model="small", input="A person.", text_format=Person, max_output_tokens=80)
    assert isinstance(parsed.output_parsed, Person)


def test_completions_embeddings_models() -> None:
    assert client.completions.create(model="small", prompt="One, two,", max_tokens=4, temperature=0).choices[0].text
    one, two = client.embeddings.create(model="small", input=["a", "b"]).data
    assert len(one.embedding) == len(two.embedding) > 100
    assert [model.id for model in client.models.list()] == ["small"]


def test_streamed_tools() -> None:
    ask = {"model": "small", "messages": ASK, "tools": [TOOL], "tool_choice": "required", "max_tokens": 80, "seed": 1}
    with client.chat.completions.stream(**ask) as stream:
        events = list(stream)
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [event.name for event in done] == ["Weather"] * len(done) != []
    Weather.model_validate_json(done[0].arguments)
