"""Several models behind one address: real processes, tiny models."""

import contextlib
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from openai import NotFoundError

from surefoot.front.app import MODEL_ROUTES
from surefoot.front.serve import FRONT_BYTES
from tests.cli.process import run
from tests.front.many import NAMES, PROMPT, ManyModels, ask, need_bytes
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S, wait_for


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyModels]:
    """All three fit."""
    folder = tmp_path_factory.mktemp("many")
    made = ManyModels(folder, 3, "--pooling", "mean", a={"aliases": '["gpt-4o", "org/other"]'})
    yield made
    made.stop()


@pytest.fixture(scope="module")
def single() -> Iterator[Server]:
    made = Server(stories_gguf(), "--max-context", "512", "--max-running", "8", "--pooling", "mean")
    yield made
    made.stop()


# ---- routes ----


def test_models_are_loaded_when_asked_for(many: ManyModels) -> None:
    assert [card["id"] for card in many.cards()] == ["a", "gpt-4o", "org/other", "b", "c"]
    texts = {ask(many.client, model) for model in NAMES}
    assert len(texts) == 1  # the same file, the same request: the same answer
    assert set(many.states().values()) == {"loaded"}
    assert many.wait_for(r"loaded\s+c in [\d.]+ s \([\d.]+ s of processor time\): ")


def test_names(many: ManyModels) -> None:
    client = many.client
    for name in ("gpt-4o", "org/other"):
        assert client.models.retrieve(name).id == name
        reply = client.chat.completions.create(model=name, messages=[{"role": "user", "content": "Once"}], max_tokens=2)
        assert reply.model == "a"
    with pytest.raises(NotFoundError, match="use one of 'a', 'b', 'c'"):
        ask(client, "gpt-5")


def test_a_request_without_a_model_goes_to_the_first(many: ManyModels) -> None:
    for prompt in ("Once", "Once " * 20_000):  # small, and read on another thread
        body = {"prompt": prompt, "max_tokens": 2}
        reply = httpx.post(f"{many.url}/completions", json=body).json()
        assert reply.get("model", "a") == "a"
        assert "model_not_found" not in str(reply)
    named = httpx.post(f"{many.url}/completions", json={**body, "model": "gpt-5"})
    assert named.status_code == 404


def test_answers_are_those_of_a_server_of_one_model(many: ManyModels, single: Server) -> None:
    """Of every API; ids and times apart."""
    message = [{"role": "user", "content": PROMPT}]
    bodies = {
        "/v1/chat/completions": {"messages": message},
        "/v1/completions": {"prompt": PROMPT},
        "/v1/messages": {"messages": message},
        "/v1/responses": {"input": PROMPT},
        "/v1/embeddings": {"input": PROMPT},
        "/tokenize": {"prompt": PROMPT},
        "/api/chat": {"messages": message, "stream": False},
        "/api/generate": {"prompt": PROMPT, "stream": False},
        "/api/embed": {"input": PROMPT},
        "/infill": {"input_prefix": "a", "input_suffix": "b"},
    }
    greedy = {"temperature": 0, "num_predict": 6}
    limits = {"max_tokens": 6, "max_output_tokens": 16, "n_predict": 6, **greedy, "options": greedy}
    for path, body in bodies.items():
        ours, theirs = (
            httpx.post(f"{root}{path}", json={**limits, **body, "model": model})
            for root, model in ((many.root, "b"), (single.root, "small"))
        )
        assert ours.status_code == theirs.status_code, (path, ours.text, theirs.text)
        assert answer_in(ours.json()) == answer_in(theirs.json()), path
        assert ours.headers["content-type"] == theirs.headers["content-type"]


def answer_in(reply: object) -> object:
    """The reply without what differs from run to run."""
    varying = {"id", "created", "created_at", "model", "usage", "timings", "system_fingerprint"}
    if isinstance(reply, dict):
        return {
            key: answer_in(value)
            for key, value in reply.items()
            if key not in varying and not key.endswith(("_duration", "_at", "_count"))
        }
    return [answer_in(item) for item in reply] if isinstance(reply, list) else reply


def test_streams_pass_unchanged(many: ManyModels, single: Server) -> None:
    body = {"prompt": PROMPT, "max_tokens": 12, "seed": 3, "stream": True}
    texts = []
    for root, model in ((many.root, "b"), (single.root, "small")):
        with httpx.stream("POST", f"{root}/v1/completions", json={**body, "model": model}) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            assert len(reply.headers.get_list("x-request-id")) == 1
            lines = [line for line in reply.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        texts.append(texts_in(lines))
    assert texts[0] == texts[1] != ""


def test_every_route_of_a_model_is_routed(single: Server) -> None:
    paths = httpx.get(f"{single.root}/openapi.json").json()["paths"]
    posts = {path for path, operations in paths.items() if "post" in operations}
    assert {path for path in posts if not path.startswith(("/v1/files", "/v1/batches", "/admin/"))} == set(MODEL_ROUTES)


def test_schema_is_that_of_a_server_of_one_model(many: ManyModels, single: Server) -> None:
    ask(many.client, "b")
    ours, theirs = (httpx.get(f"{server.root}/openapi.json", timeout=PATIENCE_S).json() for server in (many, single))
    assert ours == theirs


def test_the_log_has_no_line_for_each_request(many: ManyModels) -> None:
    ask(many.client, "a")
    assert "loaded" in many.read()
    assert "HTTP Request" not in many.log


def test_schema_unloads_no_model(tmp_path: Path) -> None:
    """The first model is not loaded for it while another is."""
    server = ManyModels(tmp_path, 1)
    ask(server.client, "b")
    assert httpx.get(f"{server.root}/openapi.json", timeout=PATIENCE_S).status_code == 200
    assert server.states()["b"] == "loaded"
    assert server.num_loads() == 1
    server.stop()


def test_broken_requests_are_answered_by_their_route(many: ManyModels) -> None:
    reply = httpx.post(f"{many.url}/chat/completions", content=b"{", headers={"content-type": "application/json"})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "invalid_json"
    assert httpx.get(f"{many.root}/v1/chat/completions").status_code == 405
    assert httpx.get(f"{many.root}/nothing").status_code == 404


def test_clients_cannot_say_who_they_are(many: ManyModels) -> None:
    """The header that the models' processes trust is dropped."""
    headers = {"x-surefoot-caller": "not even JSON"}
    body = {"model": "a", "prompt": PROMPT, "max_tokens": 2}
    assert httpx.post(f"{many.url}/completions", json=body, headers=headers).status_code == 200


def test_page_and_probes_are_the_fronts(many: ManyModels) -> None:
    assert "<html" in httpx.get(many.root, headers={"accept": "text/html"}).text
    assert httpx.get(f"{many.root}/health").json() == {"status": "ok"}
    assert httpx.get(f"{many.root}/ready").json() == {"status": "ready"}
    assert [model["name"] for model in httpx.get(f"{many.root}/api/tags").json()["models"]] == [
        "a:latest", "b:latest", "c:latest",
    ]  # fmt: skip


def test_metrics_of_all_models_on_one_page(many: ManyModels, single: Server) -> None:
    for model in NAMES:
        ask(many.client, model)
    page = httpx.get(f"{many.root}/metrics").text
    for name in ("vllm:generation_tokens_total", "vllm:num_requests_running", "vllm:time_to_first_token_seconds_count"):
        for model in NAMES:
            assert f'{name}{{model_name="{model}"}}' in page
    ours, theirs = (
        {line.split()[2] for line in httpx.get(f"{server.root}/metrics").text.splitlines() if line.startswith("# TYPE")}
        for server in (many, single)
    )
    assert theirs <= ours
    types = [line for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))  # each family once


def test_operators_watch_a_model_that_is_loaded(many: ManyModels) -> None:
    ask(many.client, "b")
    with httpx.stream("GET", f"{many.root}/overview?model=b", timeout=PATIENCE_S) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        first = next(line for line in reply.iter_lines() if line)
    assert json.loads(first.removeprefix("data: "))["is_alive"]
    assert httpx.get(f"{many.root}/overview?model=nobody").status_code == 404
    assert httpx.get(f"{many.root}/overview/history?model=b&span=day").json()["generated"] == []
    for method, code in (("GET", "no_cache"), ("DELETE", "no_cache")):
        reply = httpx.request(method, f"{many.root}/admin/cache?model=b&user=alice")
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, code)
    assert httpx.get(f"{many.root}/admin/keys").json()["error"]["code"] == "no_keys"


def test_admins_load_and_unload(many: ManyModels) -> None:
    def managed(reply: httpx.Response) -> dict[str, dict]:
        assert reply.status_code == 200, reply.text
        return {model["name"]: model for model in reply.json()["data"]}

    def change(how: str, model: str) -> httpx.Response:
        return httpx.post(f"{many.root}/admin/models/{how}", json={"model": model}, timeout=PATIENCE_S)

    listed = httpx.get(f"{many.root}/admin/models")
    assert listed.json()["limit_bytes"] == many.limit_bytes - FRONT_BYTES
    first = managed(listed)["a"]
    assert (first["aliases"], first["context"], first["is_pinned"]) == (["gpt-4o", "org/other"], 512, False)
    assert (first["file_bytes"], first["memory_bytes"]) == (stories_gguf().stat().st_size, need_bytes())
    for _ in range(2):
        assert managed(change("load", "b"))["b"]["state"] == "loaded"
    for _ in range(2):
        assert managed(change("unload", "b"))["b"]["state"] in ("unloading", "unloaded")
    wait_for(lambda: many.states()["b"] == "unloaded", "the model's end")
    for unknown in ("gpt-4o", "none", "/etc/passwd"):
        assert change("load", unknown).json()["error"]["code"] == "model_not_found"
    assert ask(many.client, "b")


def test_a_model_that_answers_is_not_unloaded(many: ManyModels) -> None:
    """Its process is stopped, so that the answer does not end meanwhile."""

    def num_running() -> int:
        models = httpx.get(f"{many.root}/admin/models").json()["data"]
        return next(model["num_running"] for model in models if model["name"] == "c")

    ask(many.client, "c")
    process = many.children()["c"]
    os.kill(process, signal.SIGSTOP)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(ask, many.client, "c")
        try:
            wait_for(lambda: num_running() == 1, "the request")
            refused = httpx.post(f"{many.root}/admin/models/unload", json={"model": "c"})
        finally:
            os.kill(process, signal.SIGCONT)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_in_use")
    assert answer.result()


def test_batch(many: ManyModels) -> None:
    """Lines for two models in one batch."""
    client = many.client
    lines = [
        f'{{"custom_id": "{model}", "method": "POST", "url": "/v1/completions", '
        f'"body": {{"model": "{model}", "prompt": "{PROMPT}", "max_tokens": 4, "seed": 1}}}}'
        for model in ("a", "b", "none")
    ]
    file = client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    wait_for(lambda: client.batches.retrieve(batch.id).status == "completed", "the batch's end")
    done = client.batches.retrieve(batch.id)
    assert done.request_counts is not None
    assert (done.request_counts.completed, done.request_counts.failed) == (2, 1)


# ---- memory ----


def test_stream_goes_on_after_its_model_was_swapped_out_and_in(tmp_path: Path) -> None:
    server = ManyModels(tmp_path, 1)
    body = {"model": "a", "prompt": PROMPT, "max_tokens": 200, "seed": 5, "stream": True}
    whole = events(server, body)
    last = whole[0][0]
    ask(server.client, "b")
    assert server.states()["a"] == "unloaded"
    rest = events(server, body, {"last-event-id": last})
    missing = texts_in([data for _, data in whole[1:]])  # however it is cut into events
    assert texts_in([data for _, data in rest]) == missing
    assert server.num_loads() == 3
    server.stop()


def events(server: ManyModels, body: dict, headers: dict[str, str] | None = None) -> list[tuple[str, str]]:
    """Ids and data of a stream's events. What the server chose (id, time) is in the first's id, and stays."""
    found, last = [], ""
    with httpx.stream("POST", f"{server.url}/completions", json=body, headers=headers) as reply:
        for line in reply.iter_lines():
            if line.startswith("id: "):
                last = line.removeprefix("id: ")
            elif line.startswith("data: "):
                found.append((last, line))
    return found


def test_pinned_and_unused_models(tmp_path: Path) -> None:
    server = ManyModels(tmp_path, 2, a={"pinned": "true"}, b={"keep-alive": '"1s"'})
    wait_for(lambda: server.states()["a"] == "loaded", "the pinned model's load")
    assert ask(server.client, "b")
    wait_for(lambda: server.states()["b"] == "unloaded", "the end of the keep-alive")
    assert ask(server.client, "c")
    assert server.states()["a"] == "loaded"
    server.stop()


def test_model_that_can_never_fit_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="leave it out"):
        ManyModels(tmp_path, 0)


# ---- crashes and ends ----


def test_kill_of_one_models_process(tmp_path: Path) -> None:
    """Its requests get a retryable error, and go on where they stopped; the other's notice nothing."""
    server = ManyModels(tmp_path, 3)
    body = {"prompt": PROMPT, "max_tokens": 400, "seed": 5, "stream": True, "ignore_eos": True}
    expected = {model: events(server, {**body, "model": model}) for model in ("a", "b")}
    with (
        httpx.stream("POST", f"{server.url}/completions", json={**body, "model": "a"}) as lost,
        httpx.stream("POST", f"{server.url}/completions", json={**body, "model": "b"}) as kept,
    ):
        lines = lost.iter_lines()
        last = next(line for line in lines if line.startswith("id: ")).removeprefix("id: ")
        server_pid = server.children()["a"]
        kill(server_pid)
        rest = list(lines)
        others = [line for line in kept.iter_lines() if line.startswith("data: ")]
    if "data: [DONE]" not in rest:  # the answer was not over already
        assert any("model_unavailable" in line for line in rest), rest[-3:]
        last = [line for line in rest if line.startswith("id: ")][-1:] or [f"id: {last}"]
        last = last[0].removeprefix("id: ")
    assert texts_in(others) == texts_in([data for _, data in expected["b"]])
    wait_for(lambda: server.states()["a"] == "loaded", "the model's return")
    assert server.children()["a"] != server_pid
    assert server.metric("surefoot:model_crashes_total") == 1
    again = events(server, {**body, "model": "a"}, {"last-event-id": last})
    whole = texts_in([data for _, data in expected["a"]])
    assert whole.endswith(texts_in([data for _, data in again]))
    server.stop()


def texts_in(lines: list[str]) -> str:
    found = (line.removeprefix("data: ") for line in lines)
    return "".join(httpx.Response(200, text=data).json()["choices"][0]["text"] for data in found if data != "[DONE]")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_front_ends_its_processes(tmp_path: Path) -> None:
    """Asked to, and when it is killed itself."""
    for end in (Server.terminate, lambda server: server.process.kill()):
        server = ManyModels(tmp_path, 3)
        ask(server.client, "a")
        (child,) = server.children().values()
        end(server)
        server.process.wait(timeout=300)
        wait_for(lambda child=child: not is_running(child), "the end of the model's process")
        server.stop()


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


# ---- keys ----


def test_keys_are_checked_once_and_rates_are_shared(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    made = {user: make_key(keys, user, *words) for user, words in {
        "alice": (), "bob": ("--tokens-per-minute", "30"), "ops": ("--admin",),
    }.items()}  # fmt: skip
    server = ManyModels(tmp_path, 3, "--keys", str(keys), c={"users": '["alice"]'})

    def post(user: str | None, model: str, max_tokens: int = 4) -> httpx.Response:
        headers = {"authorization": f"Bearer {made[user]}"} if user else {}
        body = {"model": model, "prompt": PROMPT, "max_tokens": max_tokens}
        return httpx.post(f"{server.url}/completions", json=body, headers=headers)

    assert post(None, "a").status_code == 401
    assert post("alice", "c").status_code == 200
    assert post("bob", "c").status_code == 404
    assert post("bob", "a", 40).status_code == 200
    wait_for(lambda: post("bob", "b").status_code == 429, "the rate of tokens, used up by another model's answer")
    headers = {"authorization": f"Bearer {made['bob']}"}
    assert [card["id"] for card in httpx.get(f"{server.url}/models", headers=headers).json()["data"]] == ["a", "b"]
    assert httpx.get(f"{server.root}/metrics", headers=headers).status_code == 403
    assert (
        'user="alice"' in httpx.get(f"{server.root}/metrics", headers={"authorization": f"Bearer {made['ops']}"}).text
    )
    server.stop()


def test_user_whose_model_was_taken_for_a_swap_goes_before_the_swaps_user(tmp_path: Path) -> None:
    """One model fits. Bob alternates: his request for c waits first, and is answered after Alice's for a."""
    keys = tmp_path / "keys.toml"
    clients = {user: make_key(keys, user) for user in ("alice", "bob")}
    server = ManyModels(tmp_path, 1, "--keys", str(keys), "--max-wait", "15s")
    headers = {user: {"authorization": f"Bearer {key}"} for user, key in clients.items()}

    def post(user: str, model: str) -> httpx.Response:
        body = {"model": model, "prompt": PROMPT, "max_tokens": 4}
        return httpx.post(f"{server.url}/completions", json=body, headers=headers[user], timeout=PATIENCE_S)

    def num_waiting(model: str) -> int:
        return httpx.get(f"{server.url}/models/{model}", headers=headers["bob"]).json()["num_waiting"]

    for user, model in (("alice", "a"), ("bob", "a"), ("bob", "b")):
        assert post(user, model).status_code == 200
    with ThreadPoolExecutor() as pool:
        swapped = pool.submit(post, "bob", "c")
        wait_for(lambda: num_waiting("c") == 1, "Bob's second swap to wait")
        assert post("alice", "a").status_code == 200
        assert swapped.result().status_code == 200
    server.wait_for(r"\nloaded\s+c in")
    assert re.findall(r"\nloaded\s+(\w) in", server.log) == ["a", "b", "a", "c"]
    server.stop()


@pytest.mark.nightly
def test_one_users_swaps_leave_another_user_served(tmp_path: Path) -> None:
    """One model fits. For two minutes Alice asks for a with pauses, Bob alternates between b and c."""
    keys = tmp_path / "keys.toml"
    clients = {user: make_key(keys, user) for user in ("alice", "bob")}
    server = ManyModels(tmp_path, 1, "--keys", str(keys), "--max-wait", "30s")
    until, waits = time.monotonic() + 120, {"alice": [], "bob": []}

    def be(user: str, models: Sequence[str], pause_s: float) -> None:
        headers = {"authorization": f"Bearer {clients[user]}"}
        for model in itertools.cycle(models):
            body, began = {"model": model, "prompt": PROMPT, "max_tokens": 4}, time.monotonic()
            if began > until:
                return
            reply = httpx.post(f"{server.url}/completions", json=body, headers=headers, timeout=PATIENCE_S)
            assert reply.status_code == 200, reply.text
            waits[user].append(time.monotonic() - began)
            time.sleep(pause_s)

    with ThreadPoolExecutor() as pool:
        users = [pool.submit(be, "alice", "a", 0.5), pool.submit(be, "bob", "bc", 0.5)]
        for user in users:
            user.result()
    server.read()
    loads_s = [float(seconds) for seconds in re.findall(r"\nloaded\s+\w in ([\d.]+) s", server.log)]
    server.stop()
    alice, bob = sorted(waits["alice"]), waits["bob"]
    print(f"loads {loads_s}, alice {alice[-5:]} of {len(alice)}, bob {bob}")
    assert len(bob) >= 3, "else nothing was swapped"
    there_and_back = 2 * max(loads_s)
    assert alice[int(0.95 * len(alice))] <= there_and_back


def make_key(file: Path, user: str, *words: str) -> str:
    return next(word for word in run("keys", "add", str(file), "--user", user, *words).stdout.split() if "sf-" in word)
