"""/overview on a real server."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.access.sharing import quick_key
from tests.server.busy import busy
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S

Overview = dict[str, Any]


class Served:
    """A server that answers one request at a time, with two users."""

    def __init__(self, folder: Path) -> None:
        keys = folder / "keys.toml"
        self.alice, self.bob = quick_key(keys, "alice"), quick_key(keys, "bob")
        self.admin = quick_key(keys, "root", admin=True)
        self.server = Server(stories_gguf(), "--keys", str(keys), "--max-running", "1", "--drain-s", "3600")

    def overviews(self, key: str) -> Iterator[Overview]:
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.stream("GET", f"{self.server.root}/overview", headers=headers, timeout=PATIENCE_S) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            for line in reply.iter_lines():
                if line:
                    yield json.loads(line.removeprefix("data: "))

    def wait_for(self, happened: Callable[[Overview], object]) -> Overview:
        """The first overview of which it holds."""
        end = time.monotonic() + PATIENCE_S
        for overview in self.overviews(self.admin):
            if happened(overview):
                return overview
            assert time.monotonic() < end, f"it did not happen: {overview}"
        raise AssertionError("the server ended the overviews")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    started = Served(tmp_path)
    yield started
    started.server.stop()


def phases(overview: Overview) -> set[tuple[str, str]]:
    return {(request["user"], request["phase"]) for request in overview["requests"]}


def test_who_runs_who_waits_and_why(served: Served) -> None:
    with busy(served.server, [served.alice, served.bob, served.bob]):
        found = served.wait_for(lambda now: {("alice", "decode"), ("bob", "queue")} <= phases(now))
        row = next(request for request in found["requests"] if request["phase"] == "decode")
        assert (row["route"], row["times"]["decode_s"] > 0) == ("/v1/completions", True)
        assert 0 < row["generated_tokens"] <= row["computed_tokens"] + 1
        assert found["is_alive"]
        found = served.wait_for(lambda now: now["slowest"] and now["limit_per_second"])
        assert found["limit_per_second"] > 0
        found = served.wait_for(lambda now: {"alice", "bob"} <= {share["user"] for share in now["users"]})
        shares = {share["user"]: share["fair_share"] for share in found["users"]}
        assert shares["alice"] in (0.5, 1.0, None)
    slowest = served.wait_for(lambda now: not now["requests"])["slowest"]
    assert {request["end"] for request in slowest} == {"whole"}
    for request in slowest:
        assert sum(request["times"].values()) == pytest.approx(request["seconds"])
    assert max(request["times"]["queue_s"] for request in slowest) > 0


def test_only_for_admins(served: Served) -> None:
    reply = httpx.get(f"{served.server.root}/overview", headers={"Authorization": f"Bearer {served.alice}"})
    assert reply.status_code == 403
    assert "admin key" in reply.json()["error"]["message"]
    assert httpx.get(f"{served.server.root}/overview").status_code == 401


def test_it_does_not_hold_up_the_end(served: Served) -> None:
    """A server that drains waits for its requests for an hour here, but not for those who watch."""
    overviews = served.overviews(served.admin)
    next(overviews)
    served.server.terminate()
    for _ in overviews:
        pass
    assert served.server.process.wait(PATIENCE_S) in (0, -signal.SIGTERM)
