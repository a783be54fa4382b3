"""The Grafana dashboard: its metrics are the server's, and a real Prometheus answers every query."""

import importlib.util
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.packaging.conftest import ROOT
from tests.server.process import Server
from tests.stories import stories_gguf

FOLDER = ROOT / "packaging/grafana"
METRIC = re.compile(r"\b(?:vllm|surefoot):\w+")
PROMETHEUS = shutil.which("prometheus")
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: surefoot
    static_configs: [{{targets: ["{address}"]}}]
"""


def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grafana_make", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def queries() -> list[str]:
    board = json.loads((FOLDER / "dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(stories_gguf(), "--cache-dir", str(tmp_path_factory.mktemp("cache")))
    yield started
    started.stop()


def test_the_file_is_what_the_script_writes() -> None:
    assert (FOLDER / "dashboard.json").read_text() == make().text()


def test_every_metric_is_one_of_the_servers(server: Server) -> None:
    families = re.findall(r"^# TYPE (\S+) (\w+)$", httpx.get(f"{server.root}/metrics").text, re.MULTILINE)
    known = {name for name, _ in families}
    known |= {f"{name}_{part}" for name, kind in families if kind == "histogram" for part in ("bucket", "sum", "count")}
    used = {name for query in queries() for name in METRIC.findall(query)}
    assert used
    assert used - known == set()


def answered(address: str, query: str) -> list[Any]:
    query = query.replace("$__rate_interval", "30s").replace("$model", ".*")
    reply = httpx.get(f"{address}/api/v1/query", params={"query": query}).json()
    assert reply["status"] == "success", reply
    result: list[Any] = reply["data"]["result"]
    return result


@pytest.mark.nightly
@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus: apt-get install prometheus")
def test_prometheus_answers_every_query(server: Server, tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(CONFIG.format(address=server.root.removeprefix("http://")))
    address = "http://127.0.0.1:9790"
    words = [
        f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address={address.removeprefix('http://')}",
    ]  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([str(PROMETHEUS), *words], stdout=log, stderr=log)
    try:
        end, missing = time.monotonic() + 120, queries()
        while missing and time.monotonic() < end:
            body = {"model": "small", "prompt": "Once upon a time, " * 8, "max_tokens": 16}
            httpx.post(f"{server.url}/completions", json=body, timeout=60)
            httpx.post(f"{server.url}/completions", json={**body, "max_tokens": "many"}, timeout=60)
            time.sleep(1)
            try:
                missing = [query for query in missing if not answered(address, query)]
            except httpx.TransportError:
                continue  # not up yet
        assert missing == []
    finally:
        process.terminate()
        process.wait(timeout=60)
