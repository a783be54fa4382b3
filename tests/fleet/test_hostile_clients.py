"""Clients of a gateway that mean harm: what they send is refused or answered, and others do not wait for it."""

import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from surefoot.core.json_bounds import MOST_NODES
from surefoot.fleet.frames import ANSWER_PATH, KEY_HEADER, ForwardedRequest
from surefoot.fleet.request_names import MOST_PARSED, PromptText
from surefoot.server.access.request_context import ReplyIdentity
from tests.fleet.failover import CHAT, CHAT_PATH
from tests.fleet.running import KEY, num_ready, start_gateway, start_replica
from tests.server.access.sharing import quick_key
from tests.server.process import Server
from tests.waiting import PATIENCE_S, wait_for

ARRAYS = b'{"prompt":[' + b"[]," * 1_390_000 + b"[]]}"  # 4 MB
NUMBERS = b'{"model":"small","prompt":[' + b"1," * 2_000_000 + b"1]}"
LISTS = b'{"model":"small","prompt":[' + b"[]," * (MOST_NODES - 10) + b"[]]}"  # as many as may be
BIASES = b'{"model":"small","prompt":"a","logit_bias":{' + b",".join(b'"%d":""' % n for n in range(200_000)) + b"}}"
DEEP = [b"[" * 100_000, b'{"prompt":' * 20_000, b'{"messages":' + b"[" * 5_000, b'{"a":' * 3_000]
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = start_replica(tmp_path_factory.mktemp("replica"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def gateway(replica: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Without keys."""
    made = start_gateway([replica], tmp_path_factory.mktemp("gateway"))
    wait_for(lambda: num_ready(made) == 1)
    yield made
    assert "Traceback" not in made.stop()


def connect(server: Server) -> socket.socket:
    host, port = server.root.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def asks_honestly(gateway: Server) -> int:
    return httpx.post(gateway.root + CHAT_PATH, json=CHAT, timeout=PATIENCE_S).status_code


def post(gateway: Server, body: bytes) -> int:
    return httpx.post(gateway.root + "/v1/completions", content=body, headers=JSON, timeout=PATIENCE_S).status_code


@contextmanager
def flood(gateway: Server, body: bytes, num_clients: int) -> Iterator[list[int]]:
    """Clients that send the body again and again. Their statuses."""
    statuses, ends = list[int](), threading.Event()

    def send() -> None:
        while not ends.is_set():
            with suppress(httpx.TransportError):
                statuses.append(post(gateway, body))

    threads = [threading.Thread(target=send) for _ in range(num_clients)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def test_no_body_takes_long_to_name() -> None:
    """Bounded by what is looked at: a body that is ten times as long takes no longer. Processor time, not time."""
    short, long = (b'{"prompt":[' + b"[]," * number + b"[]]}" for number in (139_000, 1_390_000))

    def seconds(body: bytes) -> float:
        times = []
        for _ in range(5):
            began = time.thread_time()
            PromptText.of(body, "user")
            times.append(time.thread_time() - began)
        return min(times)

    assert seconds(long) < 3 * seconds(short) + 0.005


@pytest.mark.parametrize("body", DEEP, ids=lambda body: str(body[:12]))
def test_deep_bodies_have_no_names(body: bytes) -> None:
    assert PromptText.of(body, "").names == () or len(body) > MOST_PARSED


@pytest.mark.parametrize("body", [*DEEP, b'{"prompt":"\\ud800"}', b'{"prompt":' + b"9" * 20_000 + b"}"])
def test_odd_bodies_are_no_failure(gateway: Server, body: bytes) -> None:
    assert post(gateway, body) < 500


@pytest.mark.parametrize("body", [ARRAYS, NUMBERS, LISTS, BIASES], ids=["arrays", "numbers", "lists", "biases"])
def test_honest_requests_are_answered_while_hostile_bodies_arrive(gateway: Server, body: bytes) -> None:
    """By the server behind the gateway too."""
    with flood(gateway, body, 2) as statuses:
        for _ in range(5):
            assert httpx.get(f"{gateway.root}/health", timeout=PATIENCE_S).status_code == 200
        wait_for(lambda: len(statuses) >= 2)
        assert asks_honestly(gateway) == 200
    assert set(statuses) <= {400, 413, 429}
    wait_for(lambda: num_ready(gateway) == 1)


def test_a_body_that_every_server_refuses_is_sent_to_none(tmp_path: Path) -> None:
    gone = start_replica(tmp_path)
    gone.stop()
    gateway = start_gateway([gone], tmp_path)
    try:
        reply = httpx.post(gateway.root + "/v1/completions", content=ARRAYS, headers=JSON, timeout=PATIENCE_S)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "body_too_complex")
    finally:
        assert "Traceback" not in gateway.stop()


def test_a_body_without_a_key_is_refused_before_it_is_read(replica: Server, tmp_path: Path) -> None:
    quick_key(tmp_path / "keys.toml", "alice")
    gateway = start_gateway([replica], tmp_path, "--keys", str(tmp_path / "keys.toml"))
    try:
        with connect(gateway) as one:
            head = f"POST {CHAT_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(ARRAYS)}\r\n\r\n"
            one.sendall(head.encode())  # and no byte of the body
            assert one.recv(4096).startswith(b"HTTP/1.1 401")
    finally:
        assert "Traceback" not in gateway.stop()


def test_more_idle_connections_than_files(replica: Server, tmp_path: Path) -> None:
    gateway = start_gateway([replica], tmp_path, num_files=128)
    try:
        wait_for(lambda: num_ready(gateway) == 1)
        with ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(connect(gateway))
            assert asks_honestly(gateway) == 200
            assert num_ready(gateway) == 1
    finally:
        assert "Traceback" not in gateway.stop()


def resident_bytes(server: Server) -> int:
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def test_withheld_bodies_take_bounded_memory(replica: Server, tmp_path: Path) -> None:
    """All but the last byte of 150 bodies of 4 MB: the gateway holds 256 MB of them at most."""
    gateway = start_gateway([replica], tmp_path)
    head = f"POST {CHAT_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {4 << 20}\r\n\r\n".encode()
    body = bytes((4 << 20) - 1)
    try:
        wait_for(lambda: num_ready(gateway) == 1)
        before = resident_bytes(gateway)
        with ExitStack() as stack:
            for _ in range(150):
                one = stack.enter_context(connect(gateway))
                with suppress(ConnectionError):  # refused while it still sends
                    one.sendall(head + body)
            grown = resident_bytes(gateway) - before
            assert httpx.get(f"{gateway.root}/health", timeout=PATIENCE_S).status_code == 200
        assert grown < 450 << 20, "the bodies that it holds, and what is on its way"
        wait_for(lambda: asks_honestly(gateway) == 200)
    finally:
        assert "Traceback" not in gateway.stop()


@pytest.mark.parametrize(
    "head",
    [b"GET /v1/models HTTP/1.1\r\n" + b"x: " + b"a" * (1 << 20), b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n"],
    ids=["header", "address"],
)
def test_large_heads(gateway: Server, head: bytes) -> None:
    with connect(gateway) as one:
        with suppress(ConnectionError):
            one.sendall(head)
        assert one.recv(4096).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/v1/files", "/fleet/state"])
def test_names_of_others_are_refused(gateway: Server, path: str) -> None:
    assert httpx.get(gateway.root + path, headers={"host": "evil.example"}).status_code == 403


# ---- the server's side ----

IDENTITY = ReplyIdentity("ab" * 16, 1_700_000_000, 1)
HEADERS = (("host", "127.0.0.1"), ("content-type", "application/json"))
GOOD = ForwardedRequest("POST", CHAT_PATH, "", HEADERS, json.dumps(CHAT).encode(), IDENTITY)
BAD_HEADS: dict[str, object] = {
    "skipped": -1, "method": 5, "path": None, "headers": [["a", "b\r\nc: d"]], "identity": ["x", 1, 1],
    "sent": [[0, 1.5]], "names": [-1], "share": 1e300, "hint": ["file:///etc/passwd", 1], "patient": "yes",
    "charged": 1, "query": 7,
}  # fmt: skip
MORE_BAD_HEADS: list[tuple[str, object]] = [
    ("identity", ["ab" * 16, 10**30, 1]), ("identity", ["ab" * 16, 1, -1]), ("identity", 5), ("sent", {"a": 1}),
    ("headers", [["a", "\u0411"]]), ("headers", [["a b", "c"]]), ("names", [0] * 5000), ("skipped", 1e300),
    ("skipped", 10**30), ("sent", [[10**30, 1]]), ("hint", ["http://a", -1]), ("share", True),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [*BAD_HEADS.items(), *MORE_BAD_HEADS], ids=lambda part: str(part)[:30])
def test_a_server_refuses_a_malformed_head_of_a_gateway(replica: Server, field: str, value: object) -> None:
    data = GOOD.encode()
    length = int.from_bytes(data[:4], "big")
    head = json.dumps({**json.loads(data[4 : 4 + length]), field: value}).encode()
    content = len(head).to_bytes(4, "big") + head + data[4 + length :]
    reply = httpx.post(replica.root + ANSWER_PATH, content=content, headers={KEY_HEADER: KEY}, timeout=PATIENCE_S)
    assert (reply.status_code, "not a request of a gateway" in reply.text) == (400, True)
    replica.read()
    assert "Traceback" not in replica.log
