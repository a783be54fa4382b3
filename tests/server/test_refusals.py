"""What is refused, how it is said, and that the server goes on."""

from contextlib import suppress
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from tests.server.process import Server
from tests.server.routes.chat import ASK

BAD: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 10**9}, "n"),
    ({"n": 2.5}, "n"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"seed": -2}, "seed"),
    ({"stop": ["x"] * 65}, "stop"),
    ({"stop": ["x" * 1000]}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {str(token): 1 for token in range(2000)}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "king", "content": "a"}]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a:"}}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": "word " * 3000}]}, "messages"),
    ({"stream_options": {"include_usage": "often"}}, "stream_options"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"deadline_s": 0}, "deadline_s"),
    ({"chat_template_kwargs": {"a": {"b": []}}}, "chat_template_kwargs"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "param"), BAD, ids=lambda value: str(value)[:40])
def test_bad_parameters(door: Server, change: dict[str, Any], param: str | None) -> None:
    reply = httpx.post(f"{door.url}/chat/completions", json={**ASK, **change})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").split(".")[0] == (param or "")
    assert 10 < len(error["message"]) < 400


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"model": "small", "messages": NaN}', b"[" * 30_000,
        b'{"model":"small","max_tokens":' + b"9" * 50_000 + b"}",
        b'{"model":"small","messages":[{"role":"user","content":"a"}],"temperature":NaN}',
        b'{"model":"small","messages":[{"role":"user","content":"a"}],"temperature":Infinity}',
        b'{"model":"small","messages":[{"role":"user","content":"a"}],"temperature":1e400}',
    ],
    ids=lambda body: str(body[:30]),
)  # fmt: skip
def test_bad_bodies(door: Server, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    reply = httpx.post(f"{door.url}/chat/completions", content=body, headers=headers)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["message"]


def test_half_a_surrogate_pair_is_answered(door: Server) -> None:
    body = b'{"model":"small","messages":[{"role":"user","content":"a\\ud800b"}],"max_tokens":2}'
    reply = httpx.post(f"{door.url}/chat/completions", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 200, reply.text


def test_the_client_raises_its_own_errors(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="reduce the length") as caught:
        client.completions.create(model="small", prompt="word " * 3000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(NotFoundError, match="use 'small'"):
        client.chat.completions.create(**{**ASK, "model": "gpt-4o"})
    with pytest.raises(BadRequestError, match="vocabulary"):
        client.completions.create(model="small", prompt=[2**31 - 1])


def test_large_body(door: Server) -> None:
    large = b'{"model": "' + b"a" * (4 << 20) + b'"}'
    assert httpx.post(f"{door.url}/chat/completions", content=large).status_code == 413

    def pieces() -> Any:
        for start in range(0, len(large), 1 << 16):
            yield large[start : start + (1 << 16)]

    with suppress(httpx.WriteError):  # it may close while we still write
        assert httpx.post(f"{door.url}/chat/completions", content=pieces()).status_code == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Host": "LOCALHOST:1234"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
    ids=str,
)
def test_web_pages_from_elsewhere(door: Server, headers: dict[str, str], status: int) -> None:
    for path in ("/v1/models", "/health", "/ready", "/metrics"):
        reply = httpx.get(door.root + path, headers=headers)
        assert reply.status_code == status
        assert "access-control-allow-origin" not in reply.headers


def test_unknown_routes(door: Server) -> None:
    assert httpx.get(f"{door.root}/nothing").json()["error"]["message"].startswith("there is no such route")
    assert httpx.get(f"{door.url}/chat/completions").status_code == 405
    assert httpx.get(f"{door.root}/redoc").status_code == 404


def test_still_ready(server: Server) -> None:
    assert httpx.get(f"{server.root}/ready").json() == {"status": "ready"}
    assert httpx.get(f"{server.root}/health").status_code == 200
