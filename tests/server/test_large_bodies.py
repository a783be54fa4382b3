"""One body stalls nobody, whatever it holds: the event loop goes on, and memory follows the body's length."""

import asyncio
import json
import threading
import time
from pathlib import Path

import httpx
import pytest

from surefoot.core.json_bounds import MOST_NODES, MOST_NUMBERS
from tests.server.hostile_bodies import ITEMS, MOST_BYTES, HostileField, counts_of, hostile_fields
from tests.server.large_bodies import Post, posting
from tests.server.process import Server
from tests.smollm2 import find_file
from tests.stories import stories_gguf

MOST_GAP_S = 0.1
MOST_BYTES_PER_BYTE = 8  # of memory, for a byte of a body
NUM_TRIES = 4  # a neighbour may be in the way of a few in a row
Case = tuple[HostileField, str, int, bool]


class LoopWatch:
    """The longest pause of the event loop during which this process used the processor: time that other processes took
    does not count, nor does work on threads beside which the loop goes on."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        while True:
            wall, used = time.monotonic(), time.process_time()
            await asyncio.sleep(0.002)
            self.longest_s = max(self.longest_s, min(time.monotonic() - wall, time.process_time() - used))


async def longest_gap(post: Post, route: str, body: bytes) -> float:
    watch = LoopWatch()
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    status, _ = await post(route, body)
    await asyncio.sleep(0.005)
    watching.cancel()
    assert status < 500, (route, status)
    return watch.longest_s


async def check_gaps(post: Post, cases: list[Case]) -> None:
    slow = []
    for field, item, count, as_map in cases:
        body = field.filled(item, count, as_map=as_map)
        assert len(body) <= MOST_BYTES
        gaps: list[float] = []
        while len(gaps) < NUM_TRIES and min(gaps, default=1.0) > MOST_GAP_S:
            gaps.append(await longest_gap(post, field.route, body))
        if min(gaps) > MOST_GAP_S:
            slow.append(f"{field.path}: {count} of {item[:40]}: {min(gaps):.3f} s")
    assert not slow, "\n".join(slow)


def list_cases(fields: list[HostileField]) -> list[Case]:
    """Every list with every item, right and wrong: as many as fit, and as many as are parsed."""
    return [
        (field, item, count, False)
        for field in fields
        if field.items
        for item in dict.fromkeys((*ITEMS, *field.items))
        for count in dict.fromkeys(counts_of(item, as_map=False))
    ]


def some_cases(fields: list[HostileField]) -> list[Case]:
    """Every list with its valid items and with one of the wrong ones in turn, and every twelfth other field: as many as
    are parsed."""
    cases = []
    for number, field in enumerate(fields):
        wrong = ITEMS[number % len(ITEMS)]
        if field.items or number % 12 == 0:
            as_map = not field.items and number % 24 == 0
            items = dict.fromkeys((wrong, *field.items))
            cases += [(field, item, counts_of(item, as_map=as_map)[1], as_map) for item in items]
    return cases


def test_no_field_of_any_route_stalls_the_loop() -> None:
    async def run() -> None:
        async with posting(stories_gguf()) as (post, openapi):
            fields = hostile_fields(openapi)
            assert {"/v1/chat/completions", "/v1/embeddings", "/api/chat", "/v1/batches"} <= {f.route for f in fields}
            await check_gaps(post, some_cases(fields))

    asyncio.run(run())


CONTENT = HostileField("/v1/chat/completions", "content", '{"messages":[{"role":"user","content":"@hole@"}]}', ())
EMBEDDED = HostileField("/v1/embeddings", "input", '{"input":"@hole@"}', ())
DETOKENIZED = HostileField("/detokenize", "tokens", '{"tokens":"@hole@"}', ())
LARGEST = [
    (CONTENT, '{"type":"text","text":""}'), (CONTENT, '{"type":"text"}'), (CONTENT, "[]"), (CONTENT, '"ab"'),
    (EMBEDDED, "300"), (EMBEDDED, "[]"), (EMBEDDED, '"ab"'), (DETOKENIZED, "300"),
]  # fmt: skip


def test_a_body_takes_no_more_memory_than_eight_times_the_largest() -> None:
    async def run() -> None:
        async with posting(stories_gguf()) as (post, _):
            await post(CONTENT.route, b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}')  # warm-up
            for field, item in LARGEST:
                for count in counts_of(item, as_map=False):
                    body = field.filled(item, count, as_map=False)
                    before = reset_peak("self")
                    await post(field.route, body)
                    assert peak("self") - before <= MOST_BYTES_PER_BYTE * MOST_BYTES, (field.path, item, count)

    asyncio.run(run())


def reset_peak(process: str) -> int:
    """Bytes in memory now, from which `peak` counts."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return _bytes(process, "VmRSS")


def peak(process: str) -> int:
    return _bytes(process, "VmHWM")


def _bytes(process: str, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


SCHEMA = {"type": "object", "properties": {f"p{i}": {"type": "string", "enum": ["a", "b"]} for i in range(1000)}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
HONEST = {
    "a long conversation": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello, world " * 40}]}] * 4096},
    ),
    "a conversation of tool calls": (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": "a"},
                *[
                    {
                        "role": "assistant",
                        "tool_calls": [
                            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": [1, 2]}'}}
                        ],
                    },
                    {"role": "tool", "tool_call_id": "a", "content": "b"},
                ]
                * 2000,
            ]
        },
    ),
    "prompts as token ids": ("/v1/completions", {"prompt": [[12345] * 8000] * 32}),
    "texts to embed": ("/v1/embeddings", {"input": ["word " * 2000] * 256}),
    "token ids to embed": ("/v1/embeddings", {"input": [[300] * 1000] * 256}),
    "large schemas": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [TOOL] * 4}),
    "source code": ("/v1/completions", {"prompt": 'x["a"] = {\n\t"b": [1, 2, 3]};\\n"' * 60_000}),
}
REFUSED_LATER = ("context_length_exceeded", "beyond the vocabulary", "same name")  # by what the small model can do


@pytest.mark.parametrize("name", HONEST)
def test_large_honest_bodies_are_read(name: str) -> None:
    async def run() -> None:
        async with posting(stories_gguf()) as (post, _):
            route, body = HONEST[name]
            data = json.dumps(body).encode()
            assert (1 << 16) < len(data) <= MOST_BYTES
            status, reply = await post(route, data)
            assert any(words in reply.text for words in REFUSED_LATER), f"{status} {reply.text[:500]}"

    asyncio.run(run())


def test_a_bound_is_told_in_a_sentence() -> None:
    async def run() -> None:
        async with posting(stories_gguf()) as (post, _):
            for route in ("/v1/completions", "/v1/messages", "/api/generate"):
                status, reply = await post(route, b'{"prompt": [' + b"[]," * 40_000 + b"1]}")
                assert status == 400
                assert f"the body has more than {MOST_NODES} lists and objects: send less" in reply.text
            _, reply = await post("/v1/completions", b'{"prompt": [' + b"1," * (MOST_NUMBERS + 1) + b"1]}")
            assert f"more than {MOST_NUMBERS} values" in reply.text

    asyncio.run(run())


def test_json_inside_of_strings_is_bounded_too() -> None:
    async def run() -> None:
        async with posting(stories_gguf()) as (post, _):
            lists = "[" + "[]," * 400_000 + "1]"
            call = {"id": "a", "function": {"name": "f", "arguments": lists}}
            messages = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]
            guided = {"messages": messages[:1], "guided_json": lists}
            for route, body in (("/tokenize", {"messages": messages}), ("/v1/chat/completions", guided)):
                data = json.dumps(body).encode()
                assert min([await longest_gap(post, route, data) for _ in range(NUM_TRIES)]) < MOST_GAP_S
                status, reply = await post(route, data)
                assert status == 400
                assert f"more than {MOST_NODES} lists and objects" in reply.text

    asyncio.run(run())


@pytest.mark.nightly
def test_no_list_stalls_a_real_server() -> None:
    """By the clock, with a probe beside the requests, and every item of every list."""
    server = Server(find_file(), "--max-context", "2048", "--pooling", "mean")
    try:
        fields = hostile_fields(httpx.get(f"{server.root}/openapi.json").json())
        slow = [complaint for case in list_cases(fields) if (complaint := _stalls(server, case)) is not None]
        assert not slow, "\n".join(slow)
    finally:
        server.stop()


def _stalls(server: Server, case: Case) -> str | None:
    field, item, count, as_map = case
    body, seconds, growth = field.filled(item, count, as_map=as_map), [], 0
    for _ in range(NUM_TRIES):
        before = reset_peak(str(server.process.pid))
        seconds.append(_slowest_probe(server, field.route, body))
        growth = peak(str(server.process.pid)) - before
        if seconds[-1] <= MOST_GAP_S and growth <= MOST_BYTES_PER_BYTE * MOST_BYTES:
            return None
    return f"{field.path}: {count} of {item[:40]}: {min(seconds):.3f} s, {growth >> 20} MiB"


def _slowest_probe(server: Server, route: str, body: bytes) -> float:
    """How long /health took at most while the body was read."""
    headers = {"content-type": "application/json"}
    post = threading.Thread(
        target=httpx.post, args=(server.root + route,), kwargs={"content": body, "headers": headers, "timeout": None}
    )
    slowest = 0.0
    with httpx.Client(base_url=server.root, timeout=None) as client:
        client.get("/health")
        post.start()
        while post.is_alive():
            began = time.monotonic()
            client.get("/health")
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.002)
    return slowest
