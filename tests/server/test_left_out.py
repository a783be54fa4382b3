"""What a request may leave out, and what a model cannot do."""

import asyncio
from pathlib import Path

import pytest

from tests.server.hostile_bodies import hostile_fields
from tests.server.large_bodies import posting
from tests.stories import stories_gguf
from tests.weights.mutations import put_together, take_apart

TEXT = b'"messages": [{"role": "user", "content": "a"}]'
BODIES = {
    "/v1/chat/completions": b'{%b, "max_tokens": 1}' % TEXT,
    "/v1/completions": b'{"prompt": "a", "max_tokens": 1}',
    "/v1/responses": b'{"input": "a", "max_output_tokens": 1}',
    "/v1/messages": b'{%b, "max_tokens": 1}' % TEXT,
    "/v1/messages/count_tokens": b"{%b}" % TEXT,
    "/v1/embeddings": b'{"input": "a"}',
    "/tokenize": b'{"prompt": "a"}',
    "/detokenize": b'{"tokens": [1]}',
    "/api/chat": b'{%b, "options": {"num_predict": 1}, "stream": false}' % TEXT,
    "/api/generate": b'{"prompt": "a", "options": {"num_predict": 1}, "stream": false}',
    "/api/embed": b'{"input": "a"}',
    "/api/embeddings": b'{"prompt": "a"}',
    "/api/show": b"{}",
}
WITHOUT_MODEL = {"/admin/keys", "/infill", "/v1/batches"}  # they have no such field
CHOOSING = {"/admin/models/load", "/admin/models/unload"}  # the model is all that they are told
RANKING = {"/v1/rerank", "/rerank", "/v2/rerank"}  # this model is no reranker; the field is the same


def test_every_route_answers_without_a_model() -> None:
    async def run() -> None:
        async with posting(stories_gguf()) as (post, openapi):
            assert {field.route for field in hostile_fields(openapi)} == {*BODIES} | WITHOUT_MODEL | CHOOSING | RANKING
            for route, body in BODIES.items():
                status, reply = await post(route, body)
                assert status == 200, f"{route}: {reply.text}"
            for route in RANKING:
                _, reply = await post(route, b'{"query": "a", "documents": ["b"]}')
                assert "rank" in reply.json()["error"]["message"]

    asyncio.run(run())


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K without its chat template."""
    parts = take_apart(stories_gguf().read_bytes())
    parts.pairs = [pair for pair in parts.pairs if pair[0] != b"tokenizer.chat_template"]
    path = tmp_path_factory.mktemp("base") / "base.gguf"
    path.write_bytes(put_together(parts))
    return path


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat", "/tokenize"])
def test_a_base_model_says_how_it_can_be_used(base_model: Path, route: str) -> None:
    body = b"{%b}" % TEXT if route == "/tokenize" else BODIES[route]

    async def run() -> None:
        async with posting(base_model) as (post, _):
            status, reply = await post(route, body)
            assert status == 400
            assert "this model has no chat template" in reply.text
            assert "/v1/completions" in reply.text
            assert "--chat-template FILE or one of alpaca, chatml" in reply.text
            status, _ = await post("/v1/completions", BODIES["/v1/completions"])
            assert status == 200

    asyncio.run(run())
