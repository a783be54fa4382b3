"""Answers that go on at another server: the same bytes, wherever the first one broke off."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

import httpx
import pytest

from surefoot.fleet import failover
from surefoot.fleet.failover import FleetAnswer, GaveUp
from surefoot.fleet.frames import ANSWER_PATH, KEY_HEADER, STATE_PATH, ForwardedRequest
from surefoot.fleet.members import Members
from tests.fleet.failover import CHAT, CHAT_PATH, REQUESTS, STREAM
from tests.fleet.running import AFTER_HEAD, KEY, answer_of, ask, by_choice, forwarded, kill, start_replica
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import wait_for

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    folder = tmp_path_factory.mktemp("fleet")
    made = [start_replica(folder), start_replica(folder, "--speculate", "off")]
    yield made
    for server in made:
        server.stop()


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_break_changes_nothing(pair: list[Server], kind: str) -> None:
    """A few places, so that the suite stays short; test_every_place has all of them."""
    check_breaks(pair, forwarded(*REQUESTS[kind]), 5)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", REQUESTS)
def test_every_place(pair: list[Server], kind: str) -> None:
    path, body = REQUESTS[kind]
    longer = {**body, "max_tokens": 64} if "max_tokens" in body else body
    check_breaks(pair, forwarded(path, longer), 1)


def check_breaks(servers: list[Server], request: ForwardedRequest, every: int) -> None:
    whole, num_failovers = answer_of(servers, request)
    assert num_failovers == 0
    place, has_ended = 0, False
    while not has_ended:
        again, num_failovers = answer_of(servers, request, [place])
        assert again == whole, f"broken after {place} tokens"
        has_ended, place = num_failovers == 0, place + every


def test_a_chain_of_breaks(pair: list[Server]) -> None:
    """Every server in turn breaks off after two tokens more."""
    request = forwarded(*REQUESTS["three answers"])
    whole, _ = answer_of(pair, request)
    again, num_failovers = answer_of(pair, request, [2] * 40)
    assert again == whole
    assert num_failovers > 10


@pytest.mark.parametrize(("kind", "places"), [("three answers", [2, 4]), ("whole", [3]), ("embedding", [])])
def test_a_request_that_goes_on_elsewhere_is_charged_once(pair: list[Server], kind: str, places: list[int]) -> None:
    request, answers = replace(forwarded(*REQUESTS[kind]), is_charged=True), dict[int, FleetAnswer]()

    def note(number: int, members: Members, answer: FleetAnswer) -> None:
        answers[id(answer)] = answer

    for breaks in ([], places):
        status, _, num_failovers = asyncio.run(ask(pair, request, [*breaks], note))
        assert (status, num_failovers) == (200, len(breaks))
    undisturbed, broken = (answer.used for answer in answers.values())
    assert undisturbed == broken
    assert undisturbed[0] == 1
    assert undisturbed[1] > 5


def test_the_answer_is_that_of_a_plain_server(pair: list[Server]) -> None:
    """Whatever the fleet adds, content and logprobs are those that a client gets from one server."""
    path, body = REQUESTS["whole"]
    plain = httpx.post(pair[0].root + path, json=body, timeout=60).json()
    answers, _ = answer_of(pair, forwarded(path, body), [5])
    (part,) = answers[-1]
    assert json.loads(part)["choices"] == plain["choices"]


def test_a_request_is_given_up_before_it_kills_every_server(pair: list[Server]) -> None:
    with pytest.raises(GaveUp):
        asyncio.run(ask([*pair, *pair], forwarded(*REQUESTS["greedy"]), [0] * 10))


def test_a_bad_request_is_the_clients(pair: list[Server]) -> None:
    status, parts, num_failovers = asyncio.run(ask(pair, forwarded(CHAT_PATH, {**CHAT, "temperature": -1})))
    assert (status, num_failovers) == (400, 0)
    assert "temperature" in json.loads(b"".join(parts))["error"]["message"]


def test_a_refusal_that_breaks_off_goes_on(pair: list[Server]) -> None:
    """A status other than 200 is no reason to look for another server, if the client has it already."""
    request = forwarded(CHAT_PATH, {**CHAT, "temperature": -1})
    whole, again = asyncio.run(ask(pair, request)), asyncio.run(ask(pair, request, [AFTER_HEAD]))
    assert whole == (400, again[1], 0)
    assert again == (400, whole[1], 1)


# ---- the door ----


@pytest.mark.parametrize("path", [ANSWER_PATH, STATE_PATH])
def test_nobody_comes_in_without_the_key(pair: list[Server], path: str) -> None:
    for headers in ({}, {KEY_HEADER: "guessed"}, {KEY_HEADER: ""}):
        assert httpx.post(pair[0].root + path, headers=headers, content=b"x").status_code == 404


def test_malformed_history_is_refused(pair: list[Server]) -> None:
    url, headers = pair[0].root + ANSWER_PATH, {KEY_HEADER: KEY}
    for content in (b"", b"\0\0", b"\0\0\0\xff{}", b"\0\0\0\2{}", b"\xff\xff\xff\xff", b"\0\0\0\2[]"):
        assert httpx.post(url, headers=headers, content=content).status_code == 400


def test_a_server_without_a_fleet_has_no_door() -> None:
    server = Server(stories_gguf(), "--max-running", "2")
    for path in (ANSWER_PATH, STATE_PATH):
        assert httpx.post(server.root + path, headers={KEY_HEADER: KEY}, content=b"x").status_code == 404
    server.stop()


# ---- real deaths ----


def serving(members: Members, answer: FleetAnswer, servers: list[Server]) -> Server:
    """The server whose requests are not zero, by what the gateway chose last."""
    assert answer.member is not None
    return servers[members.all.index(answer.member)]


class Assassin:
    """Sends a signal to the server that computes the answer, once `place` parts have come."""

    def __init__(self, servers: list[Server], place: int, how: signal.Signals) -> None:
        self._servers, self._place, self._how = servers, place, how
        self.victim: Server | None = None

    def __call__(self, number: int, members: Members, answer: FleetAnswer) -> None:
        if number == self._place:
            self.victim = serving(members, answer, self._servers)
            kill(self.victim, self._how)

    def make_good(self, folder: Path) -> None:
        assert self.victim is not None
        if self._how is signal.SIGSTOP:
            kill(self.victim, signal.SIGCONT)
        else:
            self.victim.stop()
            self._servers[self._servers.index(self.victim)] = start_replica(folder)


def check_death(folder: Path, places: list[int], how: signal.Signals, kind: str) -> None:
    path, body = REQUESTS[kind]
    request = forwarded(path, {**body, "max_tokens": 70, "ignore_eos": True})
    servers = [start_replica(folder) for _ in range(3)]
    try:
        whole, _ = answer_of(servers, request)
        for place in places:
            assassin = Assassin(servers, place, how)
            status, parts, _ = asyncio.run(ask(servers, request, on_part=assassin))
            assert status == 200
            assert by_choice(parts) == whole, f"server gone after {place} parts"
            assassin.make_good(folder)
    finally:
        for server in servers:
            server.stop()


@pytest.mark.parametrize("kind", ["greedy", "three answers"])
def test_killed(tmp_path: Path, kind: str) -> None:
    check_death(tmp_path, [1, 30], signal.SIGKILL, kind)


def test_stopped(tmp_path: Path) -> None:
    check_death(tmp_path, [5], signal.SIGSTOP, "three answers")


def test_a_reply_that_has_begun_waits_for_a_server(pair: list[Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "WAIT_S", 0.0)  # of a reply that has not begun
    (alone, _), request = (
        pair,
        forwarded(CHAT_PATH, {**CHAT, **STREAM, "max_tokens": 70, "ignore_eos": True, "seed": 1}),
    )
    whole, _ = answer_of([alone], request)
    waking = list[Thread]()

    def stop(number: int, members: Members, answer: FleetAnswer) -> None:
        if number == 3:
            kill(alone, signal.SIGSTOP)
            waking.append(Thread(target=wake, args=(answer,)))
            waking[0].start()

    def wake(answer: FleetAnswer) -> None:
        with suppress(AssertionError):  # the server must go on, whatever happens
            wait_for(lambda: answer.num_failovers > 0)
            time.sleep(0.5)  # while there is no server
        kill(alone, signal.SIGCONT)

    # The connection breaks besides: the server may have sent all of its reply before it was stopped.
    status, parts, num_failovers = asyncio.run(ask([alone], request, [10], on_part=stop))
    waking[0].join()
    assert (status, by_choice(parts)) == (200, whole)
    assert num_failovers > 0
