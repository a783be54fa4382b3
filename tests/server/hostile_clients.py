"""Clients that ask for too much, leave, read slowly or send nonsense. Each returns how its request ended.

Bodies are encoded once, when this module is imported: what a client pays to build a request must not show in how long
others wait.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from tests.sampling.grammar_corpus import AMBIGUOUS_LARK, HOSTILE_REGEXES, HOSTILE_SCHEMAS
from tests.server.access.hostile_connections import HOSTILE_CONNECTIONS

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
ASK: Mapping[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Name three colours."}]}
JSON = {"Content-Type": "application/json"}
ALLOWED = (200, 400, 413, 429, 501, 503)  # 501: a gateway keeps no batches
PATIENCE_S = (0.5, 2.0, 8.0)  # after which a client that waits for an answer leaves

Hostile = Callable[[httpx.AsyncClient, random.Random], Awaitable[str]]


def _chat(more: Mapping[str, Any]) -> bytes:
    return json.dumps({**ASK, "max_tokens": 4, **more}).encode()


async def _post(
    http: httpx.AsyncClient, rng: random.Random, path: str, body: bytes, headers: Mapping[str, str] = JSON
) -> str:
    """The status, or `left` if patience ended before the answer came."""
    try:
        reply = await http.post(path, content=body, headers=headers, timeout=rng.choice(PATIENCE_S))
    except httpx.TimeoutException:
        return "left"
    assert reply.status_code in (*ALLOWED, *((403, 431) if "Origin" in headers else ())), reply.text
    return f"{reply.status_code}"


LEAVING = [
    json.dumps({**ASK, "max_tokens": 900, "ignore_eos": True, "stream": stream, "n": 4}).encode()
    for stream in (False, True)
]


async def leaves(http: httpx.AsyncClient, rng: random.Random) -> str:
    """At some phase: while sending, waiting, reading."""
    body, address = rng.choice(LEAVING), http.base_url
    _, writer = await asyncio.open_connection(address.host, address.port)
    lines = [f"POST {CHAT} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Authorization: {http.headers['Authorization']}", f"Content-Length: {len(body)}", "", ""]
    try:
        writer.write(("\r\n".join(lines).encode() + body)[: rng.choice([20, 200, 300, 10_000, 10_000])])
        await writer.drain()
        await asyncio.sleep(rng.choice([0.0, 0.05, 0.3, 0.6, 2.0]))
    finally:
        writer.transport.abort()
    return "left"


STREAMED = json.dumps(
    {**ASK, "max_tokens": 80, "ignore_eos": True, "stream": True, "logprobs": True, "top_logprobs": 20}
).encode()


async def reads_slowly(http: httpx.AsyncClient, rng: random.Random) -> str:
    try:
        async with http.stream("POST", CHAT, content=STREAMED, headers=JSON, timeout=rng.choice(PATIENCE_S)) as reply:
            async for _ in reply.aiter_bytes(512):
                await asyncio.sleep(0.1)
                if rng.random() < 0.05:
                    break
    except httpx.TimeoutException:
        return "left"
    return f"{reply.status_code}"


def _as_format(grammar: str) -> bytes:
    """A hostile grammar that goes on for as long as it may."""
    wanted = {"type": "grammar", "grammar": grammar}
    return _chat({"response_format": wanted, "max_tokens": 400, "logit_bias": {"2": -100}})


def _as_schema(schema: Mapping[str, Any]) -> bytes:
    wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
    return _chat({"response_format": wanted, "max_tokens": 400})


GRAMMARS = [_as_format(text) for text in AMBIGUOUS_LARK.values()]
GRAMMARS += [
    _chat({"response_format": {"type": "regex", "regex": text}, "max_tokens": 400}) for text in HOSTILE_REGEXES.values()
]
GRAMMARS += [_as_schema(schema) for schema in HOSTILE_SCHEMAS.values()]


async def sends_a_grammar(http: httpx.AsyncClient, rng: random.Random) -> str:
    body = rng.choice(GRAMMARS)
    return await _post(http, rng, CHAT, body[:-1] + b', "seed": %d}' % rng.randrange(1000))


ENDLESS = {"type": "string", "allOf": [{"pattern": f".*{number}.*"} for number in range(40)]}
WORDS = "a " * 100_000
TOO_MUCH: list[Mapping[str, Any]] = [
    {"n": 10**9},
    {"n": 16, "max_tokens": 60, "ignore_eos": True},
    {"max_tokens": -1},
    {"temperature": 1e308},
    {"temperature": -3},
    {"logit_bias": {"999999999": 5}},
    {"stop": ["a"] * 1000},
    {"seed": -(2**80)},
    {"top_logprobs": 10**6, "logprobs": True},
    {"messages": [{"role": "user", "content": WORDS}]},
    {"messages": [{"role": "user", "content": "a"}] * 5000},
    {"response_format": {"type": "regex", "regex": ".*" * 20_000}},
    {"response_format": {"type": "regex", "regex": "(a|a)*" * 50 + "b"}},
    {"response_format": {"type": "grammar", "grammar": "start: " + '"a" ' * 300_000}},
    {"response_format": {"type": "regex", "regex": "a{1000000000}"}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": ENDLESS}}},
    {"tools": [{"type": "function", "function": {"name": f"f{n}", "parameters": ENDLESS}} for n in range(128)]},
]
TOO_MUCH_BODIES = [_chat(more) for more in TOO_MUCH]


async def asks_too_much(http: httpx.AsyncClient, rng: random.Random) -> str:
    return await _post(http, rng, CHAT, rng.choice(TOO_MUCH_BODIES))


RAW = [
    b'{"model": "small", "messages": [{"role": "user", "content": "\xff\xfe\x80"}]}',
    b'{"model": "small", "messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 3}',
    b'{"model": "small", "messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
    b'{"model": "small", "messages": [{"role": "user", "content": "a"}], "top_p": -Infinity}',
    b'{"model": "small", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1e400}',
    b'{"model": "small", "messages": [{"role": "user", "content": "a"}], "seed": ' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a": ' * 20_000,
    b"\x00" * 1000,
]
MOST_BODY = 4 << 20
RAW += [  # as many wrong items as a body holds
    b'{"model":"small",%s:[%s]}' % (field, b",".join([item] * ((MOST_BODY - 64) // (len(item) + 1))))
    for field in (b'"prompt"', b'"input"', b'"messages"', b'"system"')
    for item in (b"[]", b"{}", b"0.5")
]
ROUTES = [CHAT, COMPLETIONS, EMBEDDINGS, "/v1/messages", "/v1/responses", "/tokenize", "/v1/batches"]


async def sends_nonsense(http: httpx.AsyncClient, rng: random.Random) -> str:
    return await _post(http, rng, rng.choice(ROUTES), rng.choice(RAW))


EMBEDDED = [
    json.dumps({"model": "small", "input": ["word " * length] * count}).encode()
    for length in (10, 500, 3000)
    for count in (1, 8, 300)
]


async def embeds_much(http: httpx.AsyncClient, rng: random.Random) -> str:
    return await _post(http, rng, EMBEDDINGS, rng.choice(EMBEDDED))


ORIGINS = ["http://[", "null", "http://evil.example", "file://", "http://localhost:99999999", "a" * 3000]


async def comes_from_elsewhere(http: httpx.AsyncClient, rng: random.Random) -> str:
    return await _post(http, rng, CHAT, _chat({"max_tokens": 1}), {**JSON, "Origin": rng.choice(ORIGINS)})


HOSTILE: list[Hostile] = [leaves, leaves, reads_slowly, asks_too_much, asks_too_much, sends_nonsense, embeds_much]
HOSTILE += [sends_a_grammar, sends_a_grammar, comes_from_elsewhere, *HOSTILE_CONNECTIONS]
