"""Open WebUI over a server of two models, started by the cookbook's script. Its own API is what its page uses."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot.bench.harness.server_process import free_port
from tests.server.process import Server
from tests.smollm2 import find_file
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

PACKAGES = ("open-webui==0.12.4", "torch==2.13.0")
SCRIPT = Path(__file__).parents[2] / "docs/cookbook/open_webui.py"
START_S = 600.0  # it loads PyTorch and makes its database
MODELS = """
[[model]]
name = "chat"
file = "{file}"
pinned = true

[[model]]
name = "embed"
file = "{file}"
pooling = "mean"
pinned = true
"""
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object", "properties": {"city": {"type": "string", "maxLength": 10}}, "required": ["city"],
            "additionalProperties": False,
        },
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, installed (6 GB). SUREFOOT_OPEN_WEBUI: an environment where it is kept."""
    folder = Path(os.environ.get("SUREFOOT_OPEN_WEBUI") or tmp_path_factory.mktemp("open-webui"))
    found = folder / "bin" / "open-webui"
    if not found.exists():
        if sys.version_info >= (3, 13):
            pytest.skip("Open WebUI wants Python 3.11 or 3.12")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = tmp_path_factory.mktemp("models") / "surefoot.toml"
    config.write_text(MODELS.format(file=find_file()))
    made = Server(None, "--config", str(config), "--max-context", "4096")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def webui(program: Path, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of it, logged in."""
    folder, port = tmp_path_factory.mktemp("webui"), free_port()
    environment = {**os.environ, "DATA_DIR": str(folder), "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "tests"}
    words = ["--url", server.url, "--embed", "embed", "--program", str(program), "--port", str(port)]
    log = (folder / "log").open("w")
    process = subprocess.Popen([sys.executable, SCRIPT, *words], cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
            wait_for(lambda: is_up(process, client), "Open WebUI's start", START_S)
            token = client.post("/api/v1/auths/signin", json={"email": "", "password": ""}).json()["token"]
            client.headers["Authorization"] = f"Bearer {token}"
            yield client
    finally:
        process.terminate()
        process.wait()
        log.close()
        shutil.rmtree(folder)


def is_up(process: subprocess.Popen[bytes], client: httpx.Client) -> bool:
    assert process.poll() is None, "it has ended"
    try:
        return client.get("/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def question(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def test_it_shows_the_servers_models(webui: httpx.Client) -> None:
    assert {model["id"] for model in webui.get("/api/models").json()["data"]} == {"chat", "embed"}


def test_an_answer_is_the_servers(webui: httpx.Client, server: Server) -> None:
    asked = question("Say hello.", max_tokens=12, seed=1)
    direct = httpx.post(f"{server.url}/chat/completions", json=asked, timeout=300).json()
    through = webui.post("/api/chat/completions", json=asked).json()
    assert through["choices"][0]["message"] == direct["choices"][0]["message"]


def test_a_tool_is_called(webui: httpx.Client) -> None:
    asked = question("The weather in Paris?", tools=[WEATHER], tool_choice="required", max_tokens=80)
    [call] = webui.post("/api/chat/completions", json=asked).json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]).keys() == {"city"}


def test_a_stream_that_is_dropped_stops(webui: httpx.Client, server: Server) -> None:
    asked = question("Tell me everything about the sea.", stream=True, max_tokens=3500, logit_bias={"2": -100})
    before = server.metric("vllm:generation_tokens_total")
    with webui.stream("POST", "/api/chat/completions", json=asked) as reply:
        next(line for line in reply.iter_lines() if '"content"' in line)
    wait_for(lambda: not server.metric("vllm:num_requests_running"), "the end of the dropped request")
    assert server.metric("vllm:generation_tokens_total") - before < 3500


def test_a_question_over_an_uploaded_file(webui: httpx.Client) -> None:
    text = b"The secret word of the office is heliotrope.\n"
    file = webui.post("/api/v1/files/", files={"file": ("office.txt", text, "text/plain")}).json()["id"]
    wait_for(lambda: webui.get(f"/api/v1/files/{file}").json()["data"].get("status") == "completed", "the embedding")
    asked = question("What is the secret word?", stream=True, max_tokens=20, files=[{"type": "file", "id": file}])
    with webui.stream("POST", "/api/chat/completions", json=asked) as reply:
        events = [json.loads(line[6:]) for line in reply.iter_lines() if line.startswith("data: {")]
    [found] = next(event["sources"] for event in events if "sources" in event)
    assert found["document"] == [text.decode().strip()]
    assert any(event["choices"][0]["delta"].get("content") for event in events if event.get("choices"))
