"""Web pages that call the server: the headers, and a real browser that obeys them."""

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.access.sharing import quick_key
from tests.server.doors import DOORS, GATEWAY, open_door
from tests.stories import stories_gguf

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BROWSER_S = 120.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
PAGE = """<!doctype html><meta charset="utf-8"><script>
const ask = async (key, stream) => {
  try {
    const reply = await fetch("%(url)s/chat/completions", {
      method: "POST",
      headers: {"Authorization": "Bearer " + key, "Content-Type": "application/json"},
      body: JSON.stringify({model: "small", messages: [{role: "user", content: "Once"}], max_tokens: 4, stream}),
    });
    return {status: reply.status, retry: reply.headers.get("Retry-After"), text: await reply.text()};
  } catch (error) {
    return {status: 0, text: String(error)};
  }
};
(async () => {
  const found = {
    whole: await ask("%(key)s", false), stream: await ask("%(key)s", true), wrong: await ask("sf-x", false),
    second: await ask("%(limited)s", false), limited: await ask("%(limited)s", false),
  };
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


class Site:
    """A web site of its own origin. Its page asks the server and sends back what it could read."""

    def __init__(self) -> None:
        self.page = ""
        self.found: queue.Queue[dict[str, Any]] = queue.Queue()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.origin = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def _handler(site) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(site.page.encode() if self.path == "/" else b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(b"")
                site.found.put(json.loads(body))

            def answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class Called:
    """A server or a gateway with keys that one site's pages may call."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.friend, self.stranger = Site(), Site()
        keys = folder / "keys.toml"
        self.key, self.limited = quick_key(keys, "alice"), quick_key(keys, "bob", requests_per_minute=1)
        self.audit = folder / "audit.jsonl"
        # A slash at the end is what people copy from the address bar.
        words = ["--audit-log", str(self.audit), "--allowed-origin", f"{self.friend.origin}/"]
        words += ["--keys", str(keys)] if kind == GATEWAY else []
        self._door = open_door(kind, stories_gguf(), folder, *words, inner=("--keys", str(keys)))
        self.server = self._door.server
        names = {"url": self.server.url, "key": self.key, "limited": self.limited}
        self.friend.page = self.stranger.page = PAGE % names

    @property
    def route(self) -> str:
        return f"{self.server.url}/chat/completions"

    def close(self) -> None:
        self._door.stop()
        self.friend.close()
        self.stranger.close()


@pytest.fixture(scope="module", params=DOORS)
def called(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Called]:
    made = Called(request.param, tmp_path_factory.mktemp("called"))
    yield made
    made.close()


def preflight(called: Called, origin: str) -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
    }
    return httpx.options(called.route, headers=headers)


def test_preflight_needs_no_key(called: Called) -> None:
    reply = preflight(called, called.friend.origin)
    assert reply.status_code == 200
    assert reply.headers["Access-Control-Allow-Origin"] == called.friend.origin
    assert "POST" in reply.headers["Access-Control-Allow-Methods"]
    assert "x-stainless-os" in reply.headers["Access-Control-Allow-Headers"]
    assert "Origin" in reply.headers["Vary"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://[", "http://127.0.0.1:1"])
def test_other_origins_are_refused(called: Called, origin: str) -> None:
    assert preflight(called, origin).status_code >= 400
    headers = {"Origin": origin, "Authorization": f"Bearer {called.key}"}
    reply = httpx.get(f"{called.server.url}/models", headers=headers)
    assert reply.status_code == 403
    assert reply.json()["error"]["type"] == "permission_error"
    for answer in (preflight(called, origin), reply):
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert "Origin" in answer.headers["Vary"]


def test_every_answer_can_be_read(called: Called) -> None:
    """Refusals and streams too: else a page learns nothing but that something failed."""
    ask = {"model": "small", "messages": [{"role": "user", "content": "Once"}], "max_tokens": 2}
    cases = {(called.key, True): 200, (called.key, False): 200, ("sf-wrong", False): 401}
    for (key, stream), status in cases.items():
        headers = {"Origin": called.friend.origin, "Authorization": f"Bearer {key}"}
        reply = httpx.post(called.route, json={**ask, "stream": stream}, headers=headers)
        assert reply.status_code == status
        assert reply.headers["Access-Control-Allow-Origin"] == called.friend.origin
        assert "Retry-After" in reply.headers["Access-Control-Expose-Headers"]
    for path, status in (("/nothing", 404), ("/v1/chat/completions", 405)):
        headers = {"Origin": called.friend.origin, "Authorization": f"Bearer {called.key}"}
        reply = httpx.get(called.server.root + path, headers=headers)
        assert reply.status_code == status
        assert reply.headers["Access-Control-Allow-Origin"] == called.friend.origin


def test_own_pages_need_no_permission(called: Called) -> None:
    headers = {"Origin": called.server.root, "Authorization": f"Bearer {called.key}"}
    assert httpx.get(f"{called.server.url}/models", headers=headers).status_code == 200


@contextmanager
def browser(url: str) -> Iterator[None]:
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="surefoot-browser-", ignore_cleanup_errors=True) as profile:
        words = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", url]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def visit(site: Site) -> dict[str, Any]:
    """What the page could read."""
    with browser(site.origin):
        return site.found.get(timeout=BROWSER_S)


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")


@needs_browser
def test_chromium_lets_an_allowed_page_call(called: Called) -> None:
    found = visit(called.friend)
    assert found["whole"]["status"] == 200, found
    assert json.loads(found["whole"]["text"])["choices"][0]["message"]["content"]
    assert found["stream"]["text"].rstrip().endswith("[DONE]"), found
    assert found["wrong"]["status"] == 401, found
    assert found["second"]["status"] == 200, found
    assert found["limited"]["status"] == 429, found
    assert int(found["limited"]["retry"]) > 0


@needs_browser
def test_chromium_blocks_any_other_page(called: Called) -> None:
    before = called.audit.read_text().count("/v1/chat/completions")
    found = visit(called.stranger)
    assert {part["status"] for part in found.values()} == {0}, found
    assert called.audit.read_text().count("/v1/chat/completions") == before, "no request was as much as sent"
