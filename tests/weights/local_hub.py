"""A hub on this machine: the part of its HTTP protocol that huggingface_hub and surefoot use, over a folder's files.

Stands for the real hub, which tests cannot reach.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

REPOSITORY, COMMIT = "owner/name", "c" * 40
PIECE_BYTES = 1 << 16


@dataclass
class LocalHub:
    """What the server does, for the test to change and to read."""

    files: Mapping[str, bytes]  # of the only repository
    piece_s: float = 0.0  # pause after every piece that is sent
    has_ranges: bool = True
    flipped: set[str] = field(default_factory=set)  # files that arrive with a wrong byte
    num_sent: dict[str, int] = field(default_factory=dict)  # bytes sent, by file
    url: str = ""


@contextmanager
def serve_hub(files: Mapping[str, bytes]) -> Iterator[LocalHub]:
    hub = LocalHub(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, hub))
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, hub: LocalHub, *arguments: Any) -> None:
        self.hub = hub
        super().__init__(*arguments)

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == f"/api/models/{REPOSITORY}/tree/{COMMIT}":
            self._send_json([_entry(name, data) for name, data in self.hub.files.items()])
        elif path.startswith(f"/api/models/{REPOSITORY}"):
            self._send_json({"id": REPOSITORY, "sha": COMMIT, "siblings": [], "tags": [], "private": False})
        else:
            self._send_file(path.removeprefix(f"/{REPOSITORY}/resolve/").partition("/")[2])

    do_HEAD = do_GET

    def _send_json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self._send_head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def _send_file(self, name: str) -> None:
        if name not in self.hub.files:
            self._send_head(404, {"X-Error-Code": "EntryNotFound", "Content-Length": "0"})
            return
        data = self.hub.files[name]
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if self.hub.has_ranges else None
        start, end = (int(span[1]), int(span[2] or len(data) - 1) + 1) if span else (0, len(data))
        end = min(end, len(data))
        headers = {**_headers(data), "Content-Length": str(end - start)}
        if span:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._send_head(206 if span else 200, headers)
        if self.command == "GET":
            self._send_slowly(name, _flip(data) if name in self.hub.flipped else data, start, end)

    def _send_slowly(self, name: str, data: bytes, start: int, end: int) -> None:
        for place in range(start, end, PIECE_BYTES):
            piece = data[place : min(place + PIECE_BYTES, end)]
            try:
                self.wfile.write(piece)
            except OSError:  # the client was killed
                return
            self.hub.num_sent[name] = self.hub.num_sent.get(name, 0) + len(piece)
            time.sleep(self.hub.piece_s)

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


def _is_large(name: str) -> bool:
    return name.endswith((".gguf", ".safetensors"))


def _entry(name: str, data: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": _git_hash(data)}
    if _is_large(name):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


def _git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _headers(data: bytes) -> dict[str, str]:
    tag = hashlib.sha256(data).hexdigest()
    return {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"', "X-Linked-Etag": f'"{tag}"', "X-Linked-Size": str(len(data))}


def _flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])
