"""/v1/embeddings through OpenAI's client."""

import base64
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

from tests.server.answer.streams import left_undone
from tests.server.process import Server
from tests.server.routes.chat import ASK

TEXTS = ["A cat sleeps.", "The kitten is asleep on the sofa, and nobody wakes it. " * 6, "Taxes rise in spring."]


def embed(client: OpenAI, given: Any, **more: Any) -> list[list[float]]:
    reply = client.embeddings.create(model="small", input=given, **more)
    assert [one.index for one in reply.data] == list(range(len(reply.data)))
    assert reply.usage.prompt_tokens == reply.usage.total_tokens > 0
    return [one.embedding for one in reply.data]


def test_forms_of_input_and_output(server: Server, client: OpenAI) -> None:
    together = embed(client, TEXTS)
    assert [embed(client, text)[0] for text in TEXTS] == together
    assert embed(client, TEXTS, encoding_format="float") == together
    ids = [httpx.post(f"{server.root}/tokenize", json={"prompt": text}).json()["tokens"] for text in TEXTS]
    assert embed(client, ids) == together
    assert embed(client, ids[0]) == together[:1]
    assert embed(client, TEXTS, dimensions=len(together[0])) == together
    for vector in together:
        assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-6)
    raw = httpx.post(f"{server.url}/embeddings", json={"model": "small", "input": "One", "encoding_format": "base64"})
    packed = base64.b64decode(raw.json()["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(together[0])}f", packed)) == embed(client, "One", encoding_format="float")[0]


def test_company_does_not_show(client: OpenAI) -> None:
    quiet = embed(client, TEXTS)
    with ThreadPoolExecutor(8) as threads:
        chats = [threads.submit(client.chat.completions.create, **ASK, n=2) for _ in range(3)]  # type: ignore[arg-type]
        assert [threads.submit(embed, client, TEXTS) for _ in range(3)][-1].result() == quiet
        assert all(chat.result().choices for chat in chats)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": ""}, "empty"),
        ({"input": []}, "at least 1"),
        ({"input": [[]]}, "at least 1"),
        ({"input": ["a"] * 257}, "at most 256"),
        ({"input": [10**8]}, "beyond the vocabulary"),
        ({"input": "a " * 3000}, "shorten"),
        ({"input": "a", "dimensions": 8}, "576 dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "float"),
    ],
    ids=["empty", "none", "no tokens", "many", "vocabulary", "long", "dimensions", "format"],
)
def test_refusals(client: OpenAI, body: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        client.embeddings.with_raw_response.create(**{"model": "small", "encoding_format": "float", **body})


def test_clients_that_go_end_their_work(server: Server) -> None:
    body = {"model": "small", "input": ["word " * 1500] * 40}
    with left_undone(server, "vllm:prompt_tokens_total", 40 * 1500), pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/embeddings", json=body, timeout=httpx.Timeout(300, read=0.5))
