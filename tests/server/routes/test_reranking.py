"""/v1/rerank in the forms of Jina's, Cohere's and vLLM's clients, beside the Python API."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot import LLM
from surefoot.server.batch.run_batch import run_batch
from tests.server.access.sharing import quick_key
from tests.server.batch.run_batch import read
from tests.server.process import Server
from tests.smollm2 import find_file

QUERY = "What is the capital of France?"
DOCUMENTS = [
    "Paris is the capital of France.",
    "A toaster is a kitchen appliance. " * 8,
    "<|im_end|>",
    "Berlin, Paris.",
]
BODY: dict[str, Any] = {"model": "small", "query": QUERY, "documents": DOCUMENTS}


@pytest.fixture(scope="module")
def wanted() -> list[tuple[int, float]]:
    llm = LLM(find_file(), threads=1, max_context=512, pooling="rank")
    return [(place.index, place.relevance_score) for place in llm.rerank(QUERY, DOCUMENTS)]


def post(server: Server, route: str = "/v1/rerank", **changes: Any) -> httpx.Response:
    return httpx.post(f"{server.root}{route}", json={**BODY, **changes}, timeout=300)


def places(reply: httpx.Response) -> list[tuple[int, float]]:
    assert reply.status_code == 200, reply.text
    return [(result["index"], result["relevance_score"]) for result in reply.json()["results"]]


@pytest.mark.parametrize("route", ["/v1/rerank", "/rerank", "/v2/rerank"])
def test_every_path_has_the_same_bits(ranking: Server, wanted: list[tuple[int, float]], route: str) -> None:
    assert places(post(ranking, route)) == wanted
    assert len({score for _, score in wanted}) == len(DOCUMENTS)
    objects = [{"text": text, "id": number} for number, text in enumerate(DOCUMENTS)]
    assert places(post(ranking, route, documents=objects, query={"text": QUERY})) == wanted
    assert places(post(ranking, route, top_n=2, return_documents=False)) == wanted[:2]


def test_parts_of_the_reply(ranking: Server) -> None:
    reply = post(ranking).json()
    for result in reply["results"]:
        assert result["document"] == {"text": DOCUMENTS[result["index"]]}
    assert reply["usage"]["prompt_tokens"] == reply["usage"]["total_tokens"] > 100
    assert (reply["model"], reply["object"], bool(reply["id"])) == ("small", "list", True)
    assert reply["meta"]["billed_units"] == {"search_units": 1}
    assert all("document" not in result for result in post(ranking, return_documents=False).json()["results"])


def test_company_does_not_show(ranking: Server, wanted: list[tuple[int, float]]) -> None:
    chat = {"model": "small", "messages": [{"role": "user", "content": QUERY}], "max_tokens": 20, "n": 2}
    with ThreadPoolExecutor(6) as threads:
        chats = [threads.submit(httpx.post, f"{ranking.url}/chat/completions", json=chat, timeout=300) for _ in "12"]
        assert [places(reply) for reply in threads.map(lambda _: post(ranking), range(3))] == [wanted] * 3
        assert [one.result().status_code for one in chats] == [200, 200]


def test_long_documents_are_shortened_if_asked(ranking: Server) -> None:
    long = "Paris is large. " * 500
    assert "shorten" in post(ranking, documents=[long]).json()["error"]["message"]
    ((_, short),) = places(post(ranking, documents=[long], max_tokens_per_doc=4))
    ((_, same),) = places(post(ranking, documents=["Paris is large."]))
    assert short == same
    assert places(post(ranking, max_tokens_per_doc=400)) == places(post(ranking))


def test_instructions_count(ranking: Server, wanted: list[tuple[int, float]]) -> None:
    assert places(post(ranking, instruction="Find kitchen appliances")) != wanted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"documents": []}, "at least 1"),
        ({"documents": ["a"] * 1001}, "at most 1000"),
        ({"documents": [{"title": "a"}]}, "text"),
        ({"query": 5}, "query"),
        ({"top_n": 0}, "top_n"),
        ({"instruction": ""}, "instruction"),
    ],
    ids=str,
)
def test_refusals(ranking: Server, changes: dict[str, Any], words: str) -> None:
    reply = post(ranking, **changes)
    assert reply.status_code == 400
    assert words in reply.json()["error"]["message"]


def test_models_of_another_kind_say_what_to_do(ranking: Server, server: Server) -> None:
    refused = httpx.post(f"{ranking.url}/embeddings", json={"model": "small", "input": "a"})
    assert (refused.status_code, "/v1/rerank" in refused.json()["error"]["message"]) == (400, True)
    refused = post(server)
    assert (refused.status_code, "--pooling rank" in refused.json()["error"]["message"]) == (400, True)


def test_a_batch_may_use_it(tmp_path: Path, wanted: list[tuple[int, float]]) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/rerank", "body": BODY}) + "\n")
    assert run_batch(LLM(find_file(), threads=2, max_context=512, pooling="rank"), source, target, "small") == 1
    (answer,) = read(target).values()
    results = answer["response"]["body"]["results"]
    assert [(result["index"], result["relevance_score"]) for result in results] == wanted


def test_keys_guard_it(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key = quick_key(file, "alice", admin=True)
    server = Server(find_file(), "--keys", str(file), "--max-context", "512", "--pooling", "rank")
    try:
        assert post(server).status_code == 401
        headers = {"Authorization": f"Bearer {key}"}
        reply = httpx.post(f"{server.root}/v2/rerank", json=BODY, headers=headers, timeout=300)
        assert len(places(reply)) == len(DOCUMENTS)
        spent = server.metric("vllm:prompt_tokens_total", key)
        assert spent == reply.json()["usage"]["prompt_tokens"]
    finally:
        server.stop()
