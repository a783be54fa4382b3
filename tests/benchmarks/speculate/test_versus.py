"""The comparison of speculation with peers, with fake servers: their requests, the timing and the figures."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.speculate.figures import speculate_versus_questions
from benchmarks.speculate.peers import SPECULATING_PEERS, speculating
from benchmarks.speculate.report import show_speculate
from benchmarks.speculate.versus import Answered, PromptLoad, SpeculateVersus, run_speculate_versus
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.server_process import Launch
from surefoot.bench.harness.timing import EngineError, TimeBudget
from surefoot.bench.peers.all_serving import SERVING_PEERS
from surefoot.bench.peers.serving import NO_PEER, PeerLimits

NUM_TOKENS, READ_S = 6, 0.4
LOADS, EDITS = ("edit_1", "edit_8", "chat_1"), tuple((number, 7) for number in range(16))
# Answers every request with at most NUM_TOKENS tokens. The first token of a prompt that is not cached takes READ_S.
FAKE_SERVER = """
import json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, gap, log, num_tokens, read_s = (kind(word) for kind, word in zip((int, float, str, int, float), sys.argv[1:]))
read, lock = set(), threading.Lock()

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *words): pass
    def do_GET(self): self.respond(b"")
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with lock, open(log, "a") as file:
            print(json.dumps(body), file=file)
        prompt, count = tuple(body["prompt"]), min(body["max_tokens"], num_tokens)
        if prompt == (13,):
            self.send_error(500)
            return
        if body["stream"] or prompt not in read:
            time.sleep(read_s)
        read.add(prompt)
        usage = json.dumps({"choices": [], "usage": {"completion_tokens": count}}).encode()
        if not body["stream"]:
            time.sleep((count - 1) * gap)
            self.respond(usage)
            return
        token, last = b'data: {"choices":[{"index":0,"text":"a"}]}\\n\\n', b"data: " + usage + b"\\n\\n"
        self.begin(count * len(token) + len(last))
        for number in range(count):
            time.sleep(gap if number else 0)
            self.wfile.write(token)
        self.wfile.write(last)
    def respond(self, data):
        self.begin(len(data))
        self.wfile.write(data)
    def begin(self, length):
        self.send_response(200)
        self.send_header("content-length", str(length))
        self.end_headers()

ThreadingHTTPServer.request_queue_size = 64
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@dataclass(frozen=True)
class FakePeer:
    """A peer with a fake server."""

    name: str
    gap: float  # seconds between tokens; negative: the server fails to start
    folder: Path  # of its log of requests

    def launch(self, model: Path, port: int, limits: PeerLimits, say: Callable[[str], None]) -> Launch:
        if self.gap < 0:
            raise EngineError("it does not load here")
        words = (str(port), str(self.gap), str(self.log), str(NUM_TOKENS), str(READ_S))
        return Launch((sys.executable, "-c", FAKE_SERVER, *words), "/health")

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.jsonl"

    def requests(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def run(peers: list[FakePeer], loads: list[PromptLoad]) -> SpeculateVersus:
    limits = PeerLimits(1, 16, 64, 1024)
    ours = 0.01  # seconds per token

    def answer(load: PromptLoad) -> Answered:
        return Answered(ours * NUM_TOKENS, NUM_TOKENS)

    return run_speculate_versus(Path("model"), answer, loads, peers, limits, TimeBudget(60, 0), lambda text: None)


def figures(versus: SpeculateVersus | None, absent: dict[str, str]) -> dict[str, tuple[float | None, str | None]]:
    computed = [question.figure() for question in speculate_versus_questions(versus, absent)]
    return {figure.name: (figure.value, figure.reason) for figure in computed}


def speculating_and_plain(folder: Path) -> dict[str, tuple[float | None, str | None]]:
    folder.mkdir()
    plain, drafting = FakePeer("llamacpp", 0.08, folder), FakePeer(speculating("llamacpp"), 0.02, folder)
    failing = [FakePeer("openvino", 0.08, folder), FakePeer(speculating("openvino"), -1, folder)]
    loads = [
        PromptLoad("edit", 1, EDITS[:2], 20),
        PromptLoad("edit", 8, EDITS, 20),
        PromptLoad("chat", 1, ((50,),), 20),
    ]
    versus = run([plain, drafting, *failing], loads)
    return figures(versus, versus.peers.absent)


def are_true(values: dict[str, tuple[float | None, str | None]]) -> bool:
    """Whether the figures fit the fake servers' timing. The speculating peer is four times as fast; if prefill counted,
    it would be 1.6 times for single requests. We take 10 ms per token, that peer 20 ms; for single requests the first
    token does not count. With eight requests at once, they share the time."""
    speedups = [values[f"llamacpp_speedup_{load}"][0] or 0 for load in LOADS]
    alone, at_once, other = (
        values[f"vs_{name}"][0] or 0 for name in ("llamacpp_edit_1", "llamacpp_edit_8", "openvino_edit_1")
    )
    return all(2 < speedup < 6 for speedup in speedups) and 1.8 < alone < 4 < other and at_once < alone / 4


@pytest.mark.nightly
def test_times_of_a_peer_with_and_without_speculation(tmp_path: Path) -> None:
    assert are_true(values := speculating_and_plain(tmp_path / "times")), values


def test_a_peer_with_and_without_speculation(tmp_path: Path) -> None:
    folder = tmp_path / "requests"
    values = speculating_and_plain(folder)
    assert all((values[f"llamacpp_speedup_{load}"][0] or 0) > 0 for load in LOADS)
    for load in LOADS:
        assert values[f"openvino_speedup_{load}"] == (None, "it does not load here")
        assert values[f"vs_vllm_{load}"] == (None, NO_PEER)
    requests = [body for body in FakePeer("llamacpp", 0, folder).requests() if body["prompt"] != [50]]
    assert [body["max_tokens"] for body in requests] == [1] * 2 + [20] * 2 + [1] * 16 + [20] * 16
    assert all(body["ignore_eos"] is False and body["temperature"] == 0 for body in requests)
    assert [body["stream"] for body in requests] == [False] * 2 + [True] * 2 + [False] * 32
    assert sorted(body["prompt"] for body in requests[20:]) == sorted(list(prompt) for prompt in EDITS)


def test_a_peer_that_fails_is_reported(tmp_path: Path) -> None:
    peers = [FakePeer("vllm", 0.001, tmp_path), FakePeer(speculating("vllm"), 0.001, tmp_path)]
    versus = run(peers, [PromptLoad("edit", 1, ((13,),), 20)])
    assert all("1 of 1 requests failed: status 500" in versus.peers.absent[peer.name] for peer in peers)
    value, reason = figures(versus, versus.peers.absent)["vs_vllm_edit_1"]
    assert value is None
    assert "status 500" in (reason or "")


def test_every_peer_can_speculate() -> None:
    assert [speculating(peer.name) for peer in SERVING_PEERS] == [peer.name for peer in SPECULATING_PEERS]


def test_answers_of_one_token_have_no_speed() -> None:
    loads = [PromptLoad("edit", 1, ((1,),), 4)]
    limits, budget = PeerLimits(1, 1, 64, 64), TimeBudget(60, 0)
    versus = run_speculate_versus(Path("model"), lambda load: Answered(0.0, 0), loads, [], limits, budget, print)
    assert "first token" in versus.peers.absent["surefoot"]
    assert figures(versus, versus.peers.absent)["vs_llamacpp_edit_1"] == (None, NO_PEER)


def test_without_peers_the_figures_say_why() -> None:
    values = figures(None, dict.fromkeys(("llamacpp", "openvino", "vllm"), NO_PEER))
    assert len(values) == 18
    assert set(values.values()) == {(None, NO_PEER)}


def test_a_table_without_peers_has_no_rows_of_theirs() -> None:
    absent = dict.fromkeys(("llamacpp", "openvino", "vllm"), NO_PEER)
    figures = [question.figure() for question in speculate_versus_questions(None, absent)]
    named = {"path": "m", "family": "llama", "layers": 1, "load_seconds": 0.0, "costs": [], "drafts": {}}
    facts = {"cpu": "", "variant": "", "threads": 1, "seconds": 1.0, "load_before": [0], "load_after": [0]}
    results = BenchResults({}, figures, named, {}, absent, facts | {"others_cpu_share": 0.0})
    console = Console(file=io.StringIO(), width=100)
    show_speculate(results, console)
    shown = console.file.getvalue()
    assert "not measured" not in shown
    assert shown.count(NO_PEER) == len(absent)
