"""/admin/keys, /admin/cache, /admin/models and /overview/history on a real server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.access.sharing import quick_key
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S

PROMPT = list(range(3, 250))


class Office:
    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "keys.toml"
        self.alice, self.root = quick_key(self.file, "alice"), quick_key(self.file, "root", admin=True)
        self.server = self.started()

    def started(self) -> Server:
        return Server(
            stories_gguf(), "--keys", str(self.file), "--cache-dir", str(self.folder / "cache"), "--state-dir",
            str(self.folder / "state"), "--audit-log", str(self.folder / "audit"), "--threads", "1",
        )  # fmt: skip

    def ask(self, key: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.request(method, f"{self.server.root}{path}", json=body, headers=headers, timeout=PATIENCE_S)

    def complete(self, key: str) -> httpx.Response:
        body = {"model": "small", "prompt": PROMPT, "max_tokens": 4}
        return self.ask(key, "POST", "/v1/completions", body)

    def audited(self, end: str) -> list[dict[str, Any]]:
        lines = map(json.loads, (self.folder / "audit").read_text().splitlines())
        return [line for line in lines if line["end"] == end]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    opened = Office(tmp_path_factory.mktemp("office"))
    yield opened
    opened.server.stop()


def test_a_key_is_added_works_at_once_and_is_revoked(office: Office) -> None:
    owner = {"user": "carol", "requests_per_minute": 600}
    made = office.ask(office.root, "POST", "/admin/keys", owner).json()
    assert (made["user"], made["requests_per_minute"], made["admin"]) == ("carol", 600, False)
    assert made["key"] not in office.file.read_text()
    assert office.complete(made["key"]).status_code == 200
    listed = office.ask(office.root, "GET", "/admin/keys").json()["data"]
    assert [(key["user"], key["admin"]) for key in listed] == [("alice", False), ("root", True), ("carol", False)]
    assert "hash" not in listed[0]
    assert office.ask(office.root, "DELETE", f"/admin/keys/{made['name']}").json()["deleted"]
    assert office.complete(made["key"]).status_code == 401
    for end in ("key added", "key revoked"):
        [line] = office.audited(end)
        assert (line["user"], line["about"]) == ("root", f"{made['name']} of carol")


def test_an_admin_is_not_locked_out(office: Office) -> None:
    listed = office.ask(office.root, "GET", "/admin/keys").json()["data"]
    own = next(key["name"] for key in listed if key["user"] == "root")
    reply = office.ask(office.root, "DELETE", f"/admin/keys/{own}")
    assert (reply.status_code, "that you use" in reply.text) == (400, True)
    assert office.ask(office.root, "DELETE", "/admin/keys/00000000").status_code == 400
    assert office.ask(office.root, "DELETE", "/admin/keys/0").status_code == 400


@pytest.mark.parametrize("owner", [{}, {"user": "a b"}, {"user": "a", "hash": "x"}, {"user": "a", "weight": -1}])
def test_a_key_of_nobody_is_refused(office: Office, owner: dict[str, Any]) -> None:
    assert office.ask(office.root, "POST", "/admin/keys", owner).status_code == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/keys"), ("POST", "/admin/keys"), ("DELETE", "/admin/keys/00000000"), ("GET", "/admin/cache"),
        ("DELETE", "/admin/cache?user=root"), ("GET", "/overview/history"), ("GET", "/admin/models"),
        ("POST", "/admin/models/load"), ("POST", "/admin/models/unload"),
    ],
)  # fmt: skip
def test_only_for_admins(office: Office, method: str, path: str) -> None:
    body = {"model": "small"} if "models" in path else {"user": "mallory", "admin": True}
    body = body if method == "POST" else None
    assert office.ask(office.alice, method, path, body).status_code == 403
    assert office.ask("sf-wrong", method, path, body).status_code == 401


def test_the_cache_is_shown_by_user_and_forgets_one(office: Office) -> None:
    for key in (office.alice, office.root):
        assert office.complete(key).status_code == 200
    end = time.monotonic() + PATIENCE_S
    while not {"alice", "root"} <= users_held(office):
        assert time.monotonic() < end, held(office)
        time.sleep(0.1)
    assert all(row["bytes"] > 0 for row in held(office))
    assert office.ask(office.root, "DELETE", "/admin/cache?user=alice").json() == {"user": "alice", "deleted": True}
    assert "alice" not in users_held(office)
    assert "root" in users_held(office)
    assert office.audited("cache forgotten")[0]["about"] == "alice"


def held(office: Office) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = office.ask(office.root, "GET", "/admin/cache").json()["data"]
    return found


def users_held(office: Office) -> set[str]:
    return {row["user"] for row in held(office)}


def test_the_only_model_stays(office: Office) -> None:
    reply = office.ask(office.root, "GET", "/admin/models").json()
    [model] = reply["data"]
    assert (model["name"], model["state"], reply["limit_bytes"]) == ("small", "loaded", None)
    assert model["file_bytes"] == stories_gguf().stat().st_size
    assert model["memory_bytes"] > 0
    for change in ("load", "unload"):
        refused = office.ask(office.root, "POST", f"/admin/models/{change}", {"model": "small"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "fixed_model")
        assert office.ask(office.root, "POST", f"/admin/models/{change}", {"model": "none"}).status_code == 404
        assert office.ask(office.root, "POST", f"/admin/models/{change}", {}).status_code == 400


def test_the_history_outlives_the_server(office: Office) -> None:
    def history(span: str) -> dict[str, Any]:
        found: dict[str, Any] = office.ask(office.root, "GET", f"/overview/history?span={span}").json()
        return found

    office.complete(office.alice)
    end = time.monotonic() + PATIENCE_S
    while not (before := history("minutes"))["at"]:
        assert time.monotonic() < end
        time.sleep(0.5)
    assert history("year")["error"]["type"] == "invalid_request_error"
    office.server.terminate()
    office.server.process.wait(PATIENCE_S)
    office.server = office.started()
    after = history("minutes")
    assert [after[name][: len(before["at"])] for name in before] == [*before.values()]


def test_without_keys_and_cache_there_is_nothing_to_administer() -> None:
    server = Server(stories_gguf(), "--threads", "1", "--cache-dir", "none")
    try:
        for path, code in (("/admin/keys", "no_keys"), ("/admin/cache", "no_cache")):
            reply = httpx.get(f"{server.root}{path}")
            assert (reply.status_code, reply.json()["error"]["code"]) == (404, code)
    finally:
        server.stop()
