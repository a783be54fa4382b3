"""A proxy between an agent and a server whose model is too weak to act: parameters of the agent's own API force what
the model does. Each request is noted, with what the server answered."""

import http.client
import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
ANSWER = "Done."
AS_JSON = {"type": "json_schema", "schema": {"const": ANSWER}}


@dataclass(frozen=True)
class Forced:
    """The tool that the model calls, with one argument."""

    tool: str
    argument: str
    value: str

    @property
    def schema(self) -> Json:
        """In place of the tool's own."""
        only = {self.argument: {"type": "string", "const": self.value}}
        return {"type": "object", "properties": only, "required": [self.argument], "additionalProperties": False}


@dataclass
class Exchange:
    """A request of the agent, as it was passed on, with the answer's status, text and usage."""

    path: str
    body: Json
    is_result: bool  # it ends with what a tool said
    status: int = 0
    text: str = ""
    usage: Json = field(default_factory=dict)

    @property
    def prompt_tokens(self) -> int:
        if "cache_read_input_tokens" in self.usage:
            return int(self.usage["input_tokens"]) + self.cached_tokens
        return int(self.usage.get("input_tokens") or self.usage["prompt_tokens"])

    @property
    def cached_tokens(self) -> int:
        details = self.usage.get("input_tokens_details") or self.usage.get("prompt_tokens_details") or {}
        return int(self.usage.get("cache_read_input_tokens", details.get("cached_tokens", 0)))


def force(path: str, body: Json, forced: Forced | None) -> Exchange:
    """The request with its tool called once, and then the answer."""
    has_tool = forced is not None and _narrow(body, forced)
    is_result = _ends_with_result(body)
    if forced is None or not has_tool or is_result:
        body |= _answering(path, body)
    elif path.endswith("/messages"):
        body["tool_choice"] = {"type": "tool", "name": forced.tool}
    elif path.endswith("/responses"):
        body["tool_choice"] = {"type": "function", "name": forced.tool}
    else:
        body["tool_choice"] = {"type": "function", "function": {"name": forced.tool}}
    if path.endswith("/completions") and body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return Exchange(path, body, is_result)


def _narrow(body: Json, forced: Forced) -> bool:
    for tool in body.get("tools") or ():
        inner = tool.get("function", tool)
        if inner.get("name") == forced.tool:
            inner["input_schema" if "input_schema" in inner else "parameters"] = forced.schema
            inner.pop("strict", None)
            return True
    return False


def _ends_with_result(body: Mapping[str, Any]) -> bool:
    """Of this turn: no user has spoken since."""
    said = body.get("messages") or body.get("input") or []
    for message in reversed(said):
        blocks = message.get("content")
        kinds = {block.get("type") for block in blocks} if isinstance(blocks, list) else set()
        if message.get("role") == "tool" or message.get("type") == "function_call_output" or "tool_result" in kinds:
            return True
        if message.get("role") == "user":
            return False
    return False


def _answering(path: str, body: Mapping[str, Any]) -> Json:
    choice = {"type": "none"} if path.endswith("/messages") else "none"
    more = {"tool_choice": choice} if body.get("tools") else {}
    if path.endswith("/messages"):
        return more | {"output_config": {**(body.get("output_config") or {}), "format": AS_JSON}}
    if path.endswith("/responses"):
        return more | {"text": {"format": {**AS_JSON, "name": "answer"}}}
    return more | {"response_format": {"type": "regex", "regex": ANSWER.replace(".", "\\.")}}


@contextmanager
def forcing(server: str, forced: Forced | None) -> Iterator[tuple[str, list[Exchange]]]:
    """The proxy's address, and what went through it."""
    exchanges: list[Exchange] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._pass(None, b"")

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlsplit(self.path).path
            exchange = None
            if path.endswith(("/messages", "/responses", "/completions")):
                exchange = force(path, json.loads(data), forced)
                data = json.dumps(exchange.body).encode()
                exchanges.append(exchange)
            self._pass(exchange, data)

        def _pass(self, exchange: Exchange | None, data: bytes) -> None:
            kept = {name: self.headers[name] for name in ("Content-Type", "Authorization") if self.headers[name]}
            upstream = http.client.HTTPConnection(urlsplit(server).netloc, timeout=900)
            upstream.request(self.command, self.path, data, kept)
            reply = upstream.getresponse()
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.headers["Content-Type"] or "text/plain")
            self.send_header("Connection", "close")
            self.end_headers()
            whole = b""
            for line in reply:
                whole += line
                self.wfile.write(line)
                self.wfile.flush()
            if exchange is not None:
                exchange.text, exchange.usage = whole.decode(), _usage(whole)
                exchange.status = reply.status
            upstream.close()

        def log_message(self, format: str, *values: Any) -> None:
            pass

    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}", exchanges
    finally:
        listening.shutdown()
        listening.server_close()


def _usage(reply: bytes) -> Json:
    """Of an answer, streamed or not."""
    usage: Json = {}
    lines = [line.removeprefix(b"data: ") for line in reply.splitlines() if line.startswith((b"data: {", b"{"))]
    for line in lines:
        event = json.loads(line)
        inner = event.get("response") or event.get("message") or event
        usage |= (inner.get("usage") if isinstance(inner, dict) else None) or event.get("usage") or {}
    return usage
