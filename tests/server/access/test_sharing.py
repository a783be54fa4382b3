"""Keys, rates, the queue's bound, and a server that is told to end."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AuthenticationError, OpenAI, RateLimitError

from tests.cli.process import COMMAND
from tests.fleet.running import key_file, num_ready, start_gateway
from tests.server.access.sharing import add_key, quick_key
from tests.server.doors import DOORS, GATEWAY
from tests.server.process import Server
from tests.server.routes.chat import ASK
from tests.smollm2 import find_file
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S, wait_for

AGENT_TOOLS = [{"name": "read", "description": "Reads a file. " * 80, "input_schema": {"type": "object"}}]
PUBLIC = "You are the assistant of a small library. " + "Answer with care, and name the shelf. " * 30


def agent_request(folder: str) -> dict[str, Any]:
    system = [{"type": "text", "text": text} for text in ("You are an agent.", f"Work in {folder}.")]
    said = [{"role": "user", "content": "Say hello."}]
    return {"model": "small", "max_tokens": 1, "system": system, "tools": AGENT_TOOLS, "messages": said}


class Shared:
    """A server that others can reach, with keys."""

    def __init__(self, folder: Path) -> None:
        self.file, self.audit = folder / "keys.toml", folder / "audit.jsonl"
        self.alice = add_key(self.file, "alice", "--admin")
        self.bob = quick_key(self.file, "bob", requests_per_minute=2)
        self.carol = quick_key(self.file, "carol", max_context=64)
        self.frank = quick_key(self.file, "frank")
        self.dave = quick_key(self.file, "dave", tokens_per_minute=1)
        public = folder / "public.txt"
        public.write_text(PUBLIC)
        agent = folder / "agent.json"
        agent.write_text(json.dumps({"path": "/v1/messages", "body": agent_request("/recorded")}))
        words = [
            "--public-prefix",
            str(public),
            "--public-prefix",
            str(agent),
            "--keys",
            str(self.file),
            "--audit-log",
            str(self.audit),
            "--max-queue",
            "4",
            "--drain-s",
            "3",
        ]
        fleet = ("--fleet-key", str(key_file(folder)))
        self.server = Server(find_file(), *words, "--max-context", "2048", *fleet, host="0.0.0.0")
        self.gateway = start_gateway([self.server], folder, "--keys", str(self.file), host="0.0.0.0")
        wait_for(lambda: num_ready(self.gateway) == 1)

    def client(self, key: str) -> OpenAI:
        return OpenAI(base_url=self.server.url, api_key=key, max_retries=0, timeout=300)

    def ask(self, key: str, **more: Any) -> Any:
        return self.client(key).chat.completions.create(**{**ASK, "max_tokens": 4, **more})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory.mktemp("shared"))
    yield made
    made.gateway.stop()
    made.server.stop()


@pytest.fixture(params=DOORS)
def door(shared: Shared, request: pytest.FixtureRequest) -> Server:
    return shared.gateway if request.param == GATEWAY else shared.server


@pytest.mark.parametrize("kind", DOORS)
def test_bind_beyond_loopback_needs_keys(kind: str, tmp_path: Path) -> None:
    gateway = ["fleet", "gateway", "http://127.0.0.1:9", "--fleet-key", str(key_file(tmp_path))]
    verb = gateway if kind == GATEWAY else ["serve", str(find_file()), "--cache-dir", "none"]
    words = [*COMMAND, *verb, "--host", "0.0.0.0", "--port", "0"]
    refused = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert refused.returncode == 1
    assert "surefoot keys add" in refused.stderr
    (tmp_path / "empty.toml").write_text("")
    words += ["--keys", str(tmp_path / "empty.toml")]
    assert subprocess.run(words, capture_output=True, timeout=300, check=False).returncode == 1


def test_every_route_but_health_needs_a_key(shared: Shared, door: Server) -> None:
    root = door.root
    assert httpx.get(f"{root}/health").status_code == 200
    assert httpx.get(f"{root}/ready").status_code == 200
    for path in ("/v1/models", "/metrics", "/openapi.json", "/tokenize", "/nothing", "/health/../metrics"):
        assert httpx.get(f"{root}{path}").status_code == 401, path
    for key in ("sf-wrong", "x" * 10_000, shared.alice[:-1]):
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{root}/v1/models", headers=headers).status_code == 401
    asking = {**ASK, "max_tokens": 4}
    with (
        OpenAI(base_url=door.url, api_key="wrong", max_retries=0, timeout=300) as client,
        pytest.raises(AuthenticationError),
    ):
        client.chat.completions.create(**asking)
    with OpenAI(base_url=door.url, api_key=shared.alice, max_retries=0, timeout=300) as client:
        assert client.chat.completions.create(**asking).choices[0].message.content


def test_the_file_has_no_key(shared: Shared) -> None:
    text = shared.file.read_text()
    assert shared.alice not in text
    assert text.count("sha256:") >= 4
    assert shared.file.stat().st_mode & 0o077 == 0


def test_request_rate(shared: Shared) -> None:
    """Two at once, then one every thirty seconds: among these there is one too many, unless each takes so long."""

    def ask_often() -> None:
        for _ in range(5):
            shared.ask(shared.bob)

    with pytest.raises(RateLimitError) as caught:
        ask_often()
    assert 1 <= int(caught.value.response.headers["Retry-After"]) <= 30
    assert shared.ask(shared.alice)


def test_token_rate(shared: Shared) -> None:
    """What is spent here takes half an hour to come back."""
    shared.ask(shared.dave, max_tokens=30, extra_body={"ignore_eos": True})
    with pytest.raises(RateLimitError, match="tokens"):
        shared.ask(shared.dave)


def test_context_of_a_key(shared: Shared) -> None:
    """max_tokens beyond it is clamped."""
    reply = shared.ask(shared.carol, max_tokens=100, extra_body={"ignore_eos": True})
    assert reply.usage.total_tokens == 64
    assert reply.choices[0].finish_reason == "length"
    with pytest.raises(Exception, match="maximum context length is 63 tokens"):
        shared.ask(shared.carol, messages=[{"role": "user", "content": "one " * 70}])


def test_each_prompt_has_its_own_limit(shared: Shared) -> None:
    prompts = ["One", "One two three four five six seven eight nine ten"]
    reply = shared.client(shared.carol).completions.create(
        model="small", prompt=prompts, max_tokens=None, extra_body={"ignore_eos": True, "return_token_ids": True}
    )
    lengths = [len(choice.token_ids) for choice in reply.choices]
    assert lengths[0] > lengths[1]
    assert reply.usage.total_tokens == 2 * 64


def cached(shared: Shared, key: str, system: str) -> int:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Where are the maps?"}]
    found: int = shared.ask(key, messages=messages, max_tokens=1).usage.prompt_tokens_details.cached_tokens
    return found


def test_no_user_finds_what_another_has_cached(shared: Shared) -> None:
    private = "This is between us. " * 60
    assert cached(shared, shared.alice, private) == 0
    assert cached(shared, shared.alice, private) > 200
    assert cached(shared, shared.frank, private) == 0


@pytest.mark.nightly
def test_time_tells_nobody_what_another_has_cached(shared: Shared) -> None:
    """What alice asks again comes at once; to frank the same words are as slow as if nobody had ever sent them."""
    system = "Between alice and the machine alone. " * 120

    def seconds(key: str) -> float:
        began = time.monotonic()
        cached(shared, key, system)
        return time.monotonic() - began

    cold, warm, other = seconds(shared.alice), min(seconds(shared.alice) for _ in range(3)), seconds(shared.frank)
    assert cold > 3 * warm, "else time could tell nothing at all"
    assert other > 3 * warm


def test_public_prefix_is_shared(shared: Shared) -> None:
    assert cached(shared, shared.alice, PUBLIC) < 200
    assert cached(shared, shared.frank, PUBLIC) > 200


def test_tools_of_a_public_request_are_shared(shared: Shared) -> None:
    found = []
    for key, folder in ((shared.alice, "/home/alice"), (shared.frank, "/home/frank")):
        reply = httpx.post(
            f"{shared.server.url}/messages", json=agent_request(folder), headers={"x-api-key": key}, timeout=300
        )
        assert reply.status_code == 200, reply.text
        found.append(reply.json()["usage"]["cache_read_input_tokens"])
    assert found[0] == 0
    assert found[1] > 200
    assert found[1] < reply.json()["usage"]["input_tokens"] + found[1] - 16, "the folder is the user's own"


def test_full_queue(shared: Shared) -> None:
    """Half of it for one user, half of the rest for the next; a stream that ends makes room again."""
    long = {"max_tokens": 1000, "stream": True, "extra_body": {"ignore_eos": True}}
    streams = [shared.ask(shared.alice, **long) for _ in range(2)]
    with pytest.raises(RateLimitError, match="2 requests are in the queue, 2 of them yours") as caught:
        shared.ask(shared.alice)
    assert int(caught.value.response.headers["Retry-After"]) >= 1
    assert shared.ask(shared.carol)
    streams.append(shared.ask(shared.frank, **long))
    with pytest.raises(RateLimitError, match="3 requests are in the queue, 1 of them yours"):
        shared.ask(shared.frank)
    assert shared.ask(shared.carol)
    for stream in streams:
        stream.close()
    wait_for(lambda: shared.server.metric("surefoot:requests_in_server", shared.alice) == 0)
    assert shared.ask(shared.alice)


def test_keys_are_read_again(shared: Shared, door: Server) -> None:
    erin = quick_key(shared.file, "erin")
    status = lambda: httpx.get(f"{door.url}/models", headers={"Authorization": f"Bearer {erin}"}).status_code  # noqa: E731
    wait_for(lambda: status() == 200)
    before = shared.file.read_text()
    shared.file.write_text("[[key]]\nbroken")
    time.sleep(1.5)
    assert status() == 200, "a broken file must leave the keys as they were"
    shared.file.write_text(before[: before.rindex("[[key]]")])
    wait_for(lambda: status() == 401)


def test_deadline(shared: Shared, door: Server) -> None:
    body = {**ASK, "max_tokens": 1500, "ignore_eos": True, "deadline_s": 0.3}
    reply = httpx.post(f"{door.url}/chat/completions", json=body, headers={"Authorization": f"Bearer {shared.alice}"})
    assert reply.status_code == 504
    assert "deadline" in reply.json()["error"]["message"]


def test_audit_has_no_text(shared: Shared) -> None:
    """A line for each end that a request can come to."""
    shared.ask(shared.alice)
    with shared.ask(shared.alice, max_tokens=1000, stream=True, extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))
    with pytest.raises(Exception, match="deadline"):
        shared.ask(shared.alice, max_tokens=1500, extra_body={"ignore_eos": True, "deadline_s": 0.3})
    with pytest.raises(AuthenticationError):
        shared.ask("wrong")

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in shared.audit.read_text().splitlines()]

    wait_for(lambda: {line["end"] for line in lines()} >= {"whole", "abandoned", "deadline", "401"})
    whole = [line for line in lines() if line.get("user") == "alice" and line["end"] == "whole"]
    assert 4 in [line["answer_tokens"] for line in whole]
    assert not re.search("colour", shared.audit.read_text())


def stream_of(server: Server, lines: list[str], **more: Any) -> threading.Thread:
    """Reads an answer on a thread of its own, event by event."""

    def read() -> None:
        headers = {"Authorization": f"Bearer {more.pop('key', 'none')}"}
        body = {**ASK, "stream": True, "seed": 1, "ignore_eos": True, **more}
        with httpx.stream("POST", f"{server.url}/chat/completions", json=body, headers=headers) as reply:
            for line in reply.iter_lines():
                lines.extend([line] if line.startswith("data: ") else [])

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def end_of(server: Server, lines: list[str], **more: Any) -> str:
    """The last event of an answer that is under way when the server is told to end, which it then does."""
    thread = stream_of(server, lines, **more)
    wait_for(lambda: len(lines) > 5)
    server.terminate()
    thread.join()
    server.process.wait(PATIENCE_S)
    log = server.stop()
    assert "draining" in log
    assert "Traceback" not in log
    return lines[-1]


def test_drain_hands_back_what_takes_too_long(shared: Shared) -> None:
    """Last of those that use the server."""
    assert "Last-Event-ID" in end_of(shared.server, [], key=shared.alice, max_tokens=1900)


def test_drain_waits_for_what_ends_in_time() -> None:
    lines = list[str]()
    assert end_of(Server(stories_gguf(), "--drain-s", "600"), lines, max_tokens=300) == "data: [DONE]"
    assert len(lines) > 50
