"""Runs an installed coding agent once, without its user's settings and files, and records what it asks a server."""

import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.cli.coding_agents import CodingAgent

QUESTION = "Say hello."
RUN_S = 120.0
KEPT = ("PATH", "LANG", "LC_ALL", "NODE_EXTRA_CA_CERTS")  # of the environment: nothing that is a key or a proxy
USAGE = {"input_tokens": 1, "output_tokens": 1}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": USAGE}
TEXT = {"type": "output_text", "text": "Hello.", "annotations": []}
ITEM = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [TEXT]}
RESPONSE = {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": []}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
# The events of an answer, by the end of a path.
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "/messages": [
        {"type": "message_start", "message": MESSAGE},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
        {"type": "message_stop"},
    ],
    "/responses": [
        {"type": "response.created", "response": {**RESPONSE, "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
        {
            "type": "response.completed",
            "response": {**RESPONSE, "status": "completed", "output": [ITEM], "usage": {**USAGE, "total_tokens": 2}},
        },
    ],
    "/chat/completions": [
        {**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello."}}]},
        {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ],
}


@dataclass(frozen=True)
class Recorded:
    """A request as the agent sent it."""

    path: str
    body: dict[str, Any]


@dataclass
class _Recorder:
    requests: list[Recorded] = field(default_factory=list)

    def events(self, path: str, data: bytes) -> list[dict[str, Any]] | None:
        """Note a request. Returns the answer's events; None for a path that is none of a model's."""
        path = path.partition("?")[0]
        for end, events in ANSWERS.items():
            if path.endswith(end):
                self.requests.append(Recorded(path, json.loads(data)))
                return events
        return None


def record(agent: CodingAgent, model: str) -> Recorded:
    """The agent's request with most text: tools and rules. model: its name on the server, of which an agent may write.
    Raises ValueError if the agent is not installed or asks for nothing."""
    program = shutil.which(agent.program)
    if program is None:
        raise ValueError(f"{agent.program} is not installed: {agent.install}")
    with tempfile.TemporaryDirectory(prefix="surefoot-agent-") as folder, _listening() as (recorder, url):
        project, environment = make_home(agent, Path(folder, "home"), url, model)
        try:
            done = subprocess.run(
                [program, *agent.ask, QUESTION], cwd=project, env=environment, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=RUN_S, check=False,
            )  # fmt: skip
            said = (done.stderr or done.stdout).strip()
        except subprocess.TimeoutExpired:
            said = f"it did not end within {RUN_S:.0f} s"
        if not recorder.requests:
            raise ValueError(f"{agent.program} asked for no answer: {said[-300:]}")
        return max(recorder.requests, key=lambda request: len(json.dumps(request.body)))


def make_home(agent: CodingAgent, home: Path, url: str, model: str) -> tuple[Path, dict[str, str]]:
    """A home with the agent's settings for the server. Returns an empty repository in it, and the environment."""
    project = home / "project"
    project.mkdir(parents=True)
    environment, files = agent.filled(url, model, "none")
    for path, text in files.items():
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment = {**kept, "HOME": str(home), "TERM": "dumb", **environment}
    subprocess.run(["git", "init", "--quiet", str(project)], env=environment, check=False)
    return project, environment


@contextmanager
def _listening() -> Iterator[tuple[_Recorder, str]]:
    """A recorder on a free port of loopback, and its address."""
    recorder = _Recorder()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events = recorder.events(self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            if events is None:
                return self.send_error(404)
            lines = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
            texts = [f"{line}data: {json.dumps(event)}\n\n" for line, event in zip(lines, events, strict=True)]
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write("".join([*texts, "" if lines[0] else "data: [DONE]\n\n"]).encode())
            return None

        def log_message(self, format: str, *values: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield recorder, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
