"""Ollama's own Python package."""

import pytest
from common import ASK, ROOT, TOOL, Person
from ollama import Client, ResponseError

client = Client(host=ROOT, timeout=300)
GREEDY = {"temperature": 0, "num_predict": 16}


def test_chat_whole_and_streamed() -> None:
    whole = client.chat("small", ASK, options=GREEDY)
    pieces = list(client.chat("small:latest", ASK, options=GREEDY, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert pieces[-1].done
    assert pieces[-1].eval_count == whole.eval_count <= 16


def test_tools() -> None:
    """Ollama's API has no way to ask for a call: the model may talk."""
    reply = client.chat("small", ASK, tools=[TOOL], options=GREEDY, think=False)
    assert reply.message.content or reply.message.tool_calls


def test_structured() -> None:
    reply = client.chat("small", ASK, format=Person.model_json_schema(), options={"num_predict": 80, "seed": 1})
    Person.model_validate_json(reply.message.content)
    Person.model_validate_json(client.generate("small", "A person", format=Person.model_json_schema()).response)


def test_generate() -> None:
    whole = client.generate("small", "Name three colours.", options=GREEDY, keep_alive="1m")
    pieces = client.generate("small", "Name three colours.", options=GREEDY, stream=True)
    assert "".join(piece.response for piece in pieces) == whole.response
    assert client.generate("small", "One, two,", raw=True, options=GREEDY).response


def test_embed() -> None:
    found = client.embed("small", ["a", "b"])
    assert len(found.embeddings) == 2
    assert list(client.embeddings("small", "a").embedding) == list(found.embeddings[0])


def test_models_and_errors() -> None:
    assert [model.model for model in client.list().models] == ["small:latest"]
    assert client.ps().models[0].context_length > 0
    assert "completion" in client.show("small").capabilities
    with pytest.raises(ResponseError, match="there is no model"):
        client.chat("other", ASK)
