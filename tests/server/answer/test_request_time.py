"""The time that a chat template prints is the request's: the same wherever and whenever the answer goes on."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fleet.running import answer_of, forwarded, start_replica
from tests.server.answer.streams import events
from tests.server.process import Server

CHAT_PATH = "/v1/chat/completions"
TEMPLATE = "It was {{ strftime_now('%H:%M:%S %Z') }} o'clock. {{ messages[0].content }}"
ASK = {
    "messages": [{"role": "user", "content": "Lily"}],
    "max_tokens": 40,
    "ignore_eos": True,
    "seed": 1,
    "model": "small",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.jinja").write_text(TEMPLATE)
    made = start_replica(folder, "--chat-template", str(folder / "clock.jinja"))
    yield made
    made.stop()


def ask(server: Server, **words: Any) -> Any:
    reply = httpx.post(server.root + CHAT_PATH, json={**ASK, **words}, timeout=60)
    return reply.json()["choices"][0]["message"]["content"] if reply.status_code == 200 else reply.json()["error"]


def at(time: Any) -> dict[str, Any]:
    return {"chat_template_kwargs": {"now": time}}


def test_a_stream_is_resumed_with_the_prompt_that_it_began_with(server: Server) -> None:
    body = {**ASK, "stream": True}
    whole = events(server, body)
    time.sleep(1.1)  # the template prints another second
    rest = events(server, body, whole[9][0])
    texts = [
        "".join(choice["delta"].get("content") or "" for _, data in part[:-1] for choice in json.loads(data)["choices"])
        for part in (whole, [*whole[:10], ("", "")], rest)
    ]
    assert texts[0] == texts[1] + texts[2]


def test_another_server_goes_on_with_the_gateways_time(server: Server) -> None:
    first = answer_of([server], forwarded(CHAT_PATH, ASK))
    time.sleep(1.1)
    assert answer_of([server], forwarded(CHAT_PATH, ASK)) == first


def test_a_request_may_give_its_time(server: Server) -> None:
    early = ask(server, **at("2026-11-18T09:30:00Z"))
    assert ask(server, **at("2026-11-18T09:30:00")) == early, "UTC where it names no zone"
    assert ask(server, **at("2027-01-01T09:30:00+00:00")) == early, "the template prints no date"
    assert ask(server, **at("2026-11-18T09:30:00+01:00")) != early, "the zone is printed"
    for wrong in ("noon", 12):
        assert ask(server, **at(wrong))["param"] == "chat_template_kwargs"


def test_a_forged_time_in_an_events_id_is_refused(server: Server) -> None:
    body = {**ASK, "stream": True}
    parts = events(server, body, most=3)[1][0].split(".")
    parts[3] = "f" * 10
    reply = httpx.post(server.root + CHAT_PATH, json=body, headers={"Last-Event-ID": ".".join(parts)}, timeout=60)
    assert reply.status_code == 400
