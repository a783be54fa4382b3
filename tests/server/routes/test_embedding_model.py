"""/v1/embeddings of a model whose files name its pooling, through OpenAI's client."""

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from openai import BadRequestError, OpenAI

from surefoot import LLM
from surefoot.api.pooling import PoolingConfig, unit
from surefoot.core import Pooling
from surefoot.server.answer.conversation import check_chats
from surefoot.server.errors import ApiError
from tests.api import pooled
from tests.server.process import Server
from tests.stories import stories_gguf

TEXTS = ["A cat sleeps.", "The kitten is asleep, and nobody wakes it. " * 8, "yes"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pooled.save_embedder(tmp_path_factory.mktemp("embedder"), "lasttoken", "Normalize")


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Iterator[Server]:
    made = Server(folder, "--max-running", "8")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def client(embedder: Server) -> OpenAI:
    return OpenAI(base_url=embedder.url, api_key="none", max_retries=0, timeout=300)


def vectors(client: OpenAI, texts: list[str] | str, **more: int) -> list[list[float]]:
    return [one.embedding for one in client.embeddings.create(model="small", input=texts, **more).data]  # type: ignore[arg-type]


def test_bits_are_the_libraries(client: OpenAI, folder: Path) -> None:
    wanted = [list(output.embedding or ()) for output in LLM(folder, threads=1).embed(TEXTS)]
    assert vectors(client, TEXTS) == wanted
    assert [vectors(client, text)[0] for text in TEXTS] == wanted
    assert sum(value * value for value in wanted[0]) == pytest.approx(1, abs=1e-6)


def test_fewer_dimensions(client: OpenAI, embedder: Server) -> None:
    whole, short = vectors(client, TEXTS), vectors(client, TEXTS, dimensions=32)
    assert [len(vector) for vector in short] == [32] * len(TEXTS)
    for long, cut in zip(whole, short, strict=True):
        assert cut == pytest.approx(unit(long, 32), abs=1e-6)
        assert sum(value * value for value in cut) == pytest.approx(1, abs=1e-6)
    body = {"model": "small", "input": TEXTS[0], "dimensions": 32, "encoding_format": "base64"}
    packed = httpx.post(f"{embedder.url}/embeddings", json=body).json()["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(packed), "<f4").tolist() == short[0]
    with pytest.raises(BadRequestError, match="96 or fewer"):
        vectors(client, TEXTS, dimensions=97)


def test_the_end_of_text_is_counted(client: OpenAI) -> None:
    reply = client.embeddings.create(model="small", input=["ab", "abc"])
    assert reply.usage.prompt_tokens == 3 + 4, "one more for each text"


def test_ollamas_route(embedder: Server, client: OpenAI) -> None:
    reply = httpx.post(f"{embedder.root}/api/embed", json={"model": "small", "input": TEXTS, "dimensions": 32})
    assert reply.json()["embeddings"] == vectors(client, TEXTS, dimensions=32)
    shown = httpx.post(f"{embedder.root}/api/show", json={"model": "small"}).json()
    assert "embedding" in shown["capabilities"]


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
def test_it_does_not_chat(embedder: Server, route: str) -> None:
    ask = {"model": "small", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    refused = httpx.post(f"{embedder.root}{route}", json=ask)
    assert refused.status_code == 400
    assert "makes embeddings and does not chat" in refused.text
    assert "/v1/embeddings" in refused.text


def test_only_what_the_files_say_counts() -> None:
    check_chats(None)
    check_chats(PoolingConfig(Pooling.MEAN, is_named=False))
    check_chats(PoolingConfig(Pooling.LAST, ranks=True, is_named=False))
    with pytest.raises(ApiError, match="/v1/rerank"):
        check_chats(PoolingConfig(Pooling.LAST, ranks=True))


def test_models_that_only_generate_are_told_what_to_do() -> None:
    server = Server(stories_gguf(), "--max-context", "64")
    try:
        refused = httpx.post(f"{server.url}/embeddings", json={"model": "small", "input": "a"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_embeddings")
        assert "--pooling mean" in refused.json()["error"]["message"]
        assert "embedding" not in httpx.post(f"{server.root}/api/show", json={"model": "small"}).json()["capabilities"]
    finally:
        server.stop()
