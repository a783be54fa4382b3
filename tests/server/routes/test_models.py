"""The model names that clients may use."""

from collections.abc import Iterator

import httpx
import pytest
from openai import NotFoundError, OpenAI

from tests.server.process import Server
from tests.stories import stories_gguf

ASK = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 2}


def client_of(server: Server) -> OpenAI:
    return OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)


@pytest.fixture(scope="module")
def aliased() -> Iterator[Server]:
    made = Server(stories_gguf(), "--model-name", "gpt-4o", "--model-name", "org/other", "--pooling", "mean")
    yield made
    made.stop()


def test_aliases(aliased: Server) -> None:
    client = client_of(aliased)
    assert [model.id for model in client.models.list()] == ["small", "gpt-4o", "org/other"]
    for name in ("small", "gpt-4o", "org/other"):
        assert client.models.retrieve(name).id == name
        assert client.chat.completions.create(model=name, **ASK).model == "small"
        assert client.embeddings.create(model=name, input="a").model == "small"
        assert httpx.post(f"{aliased.root}/tokenize", json={"model": name, "prompt": "a"}).status_code == 200
    with pytest.raises(NotFoundError, match="use 'small'"):
        client.chat.completions.create(model="gpt-5", **ASK)


def test_the_name_does_not_show_in_the_answer(aliased: Server) -> None:
    client = client_of(aliased)
    texts = {
        client.completions.create(model=name, prompt="Once", seed=1).choices[0].text for name in ("small", "gpt-4o")
    }
    assert len(texts) == 1


def test_any_name() -> None:
    server = Server(stories_gguf(), "--any-model-name")
    client = client_of(server)
    assert client.chat.completions.create(model="claude-opus-9", **ASK).model == "small"
    assert client.models.retrieve("whatever").id == "whatever"
    assert [model.id for model in client.models.list()] == ["small"]
    server.stop()
