"""/v1/embeddings of a model with an adapter: the library's bits, and no other task."""

from pathlib import Path

import httpx

from surefoot import LLM
from tests.api import adapted
from tests.server.process import Server

TEXTS = ["A cat sleeps.", "cats " * 9]


def test_an_adapter_is_served(tmp_path: Path) -> None:
    folder, task = adapted.save(tmp_path / "jina"), adapted.TASKS[1]
    server = Server(folder, "--adapter", task)
    try:
        body = {"model": "small", "input": TEXTS}
        for asked in (body, body | {"task": task}):
            reply = httpx.post(f"{server.url}/embeddings", json=asked, timeout=60).json()
            wanted = [output.embedding for output in LLM(folder, threads=1, adapter=task).embed(TEXTS)]
            assert [tuple(one["embedding"]) for one in reply["data"]] == wanted
        refused = httpx.post(f"{server.url}/embeddings", json=body | {"task": "text-matching"}, timeout=60)
        assert refused.status_code == 400
        assert "runs with the adapter separation" in refused.json()["error"]["message"]
    finally:
        server.stop()
