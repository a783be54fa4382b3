"""Token ids must be integers, on every route that takes them."""

from typing import Any

import httpx
import pytest

from tests.server.process import Server

BAD: list[Any] = [[1.5, 5], [5, 1.5], [5.0], [True, 5], [5, "5"], [[5, 1.5]], ["a", [1.5]], [None], [5, None], [-1]]
ROUTES = [
    ("/v1/completions", "prompt", {"model": "small", "max_tokens": 1}),
    ("/v1/completions", "stop_token_ids", {"model": "small", "prompt": "a", "max_tokens": 1}),
    ("/v1/embeddings", "input", {"model": "small"}),
    ("/detokenize", "tokens", {}),
]


@pytest.mark.parametrize(("route", "name", "body"), ROUTES, ids=lambda value: str(value)[:20])
def test_token_ids_are_whole_numbers(server: Server, route: str, name: str, body: dict[str, Any]) -> None:
    for ids in BAD:
        reply = httpx.post(f"{server.root}{route}", json={**body, name: ids})
        assert reply.status_code == 400, (ids, reply.text)
        assert reply.json()["error"]["param"].split(".")[0] == name
