"""/v1/files and /v1/batches through OpenAI's client, on a server that is killed on the way."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from tests.server.access.sharing import quick_key
from tests.server.batch.run_batch import CHAT, COMPLETIONS, VARYING
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S

WINDOW: Any = "24h"


class Shared:
    """A server with two users that keeps its state when it is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._keys = folder / "keys.toml"
        self.alice, self.bob = quick_key(self._keys, "alice"), quick_key(self._keys, "bob")
        self.start()

    def start(self) -> None:
        words = ["--keys", str(self._keys), "--state-dir", str(self.folder / "state"), "--max-running", "8"]
        self.server = Server(stories_gguf(), *words, "--max-file-bytes", "100000", "--pooling", "mean")

    def kill(self) -> None:
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.server.stop()

    def client(self, key: str | None = None) -> OpenAI:
        return OpenAI(base_url=self.server.url, api_key=key or self.alice, max_retries=0, timeout=300)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory.mktemp("batches"))
    yield made
    made.server.stop()


def line(number: int, url: str = COMPLETIONS, **body: Any) -> dict[str, Any]:
    return {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": {"model": "small", **body}}


def upload(client: OpenAI, lines: list[dict[str, Any]]) -> str:
    text = "".join(json.dumps(one) + "\n" for one in lines)
    return client.files.create(file=("in.jsonl", text.encode()), purpose="batch").id


def begin(client: OpenAI, lines: list[dict[str, Any]], endpoint: Any = COMPLETIONS) -> str:
    file = upload(client, lines)
    return client.batches.create(input_file_id=file, endpoint=endpoint, completion_window=WINDOW).id


def wait_for(shared: Shared, batch: str, until: Callable[[Any], bool], seconds: float = PATIENCE_S) -> Any:
    end = time.monotonic() + seconds
    while not until(found := shared.client().batches.retrieve(batch)):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def is_over(batch: Any) -> bool:
    return batch.status in ("completed", "failed", "cancelled", "expired")


def answers(shared: Shared, file: str | None) -> dict[str, Any]:
    """By custom_id, without what may differ."""
    if file is None:
        return {}
    replies = [json.loads(one) for one in shared.client().files.content(file).text.splitlines()]
    assert len({one["custom_id"] for one in replies}) == len(replies), "a line came twice"
    for one in replies:
        one.pop("checksum")
        body = one["response"]["body"]
        body.pop("created", None)
        for name in VARYING:
            body.get("usage", {}).pop(name, None)
    return {one["custom_id"]: one for one in replies}


def test_killed_on_the_way(shared: Shared) -> None:
    """kill -9 while lines are being answered: at the end each is there once, with the bits of a run in peace."""
    lines = [line(number, prompt=f"Once upon a time {number}", max_tokens=100, logprobs=1) for number in range(60)]
    lines[7]["body"]["temperature"] = 9
    lines[8]["body"]["model"] = "another"
    batch, num_kills = begin(shared.client(), lines), 0
    for _ in range(2):
        before = wait_for(shared, batch, lambda one: one.request_counts.total > 0).request_counts.completed
        seen = wait_for(shared, batch, lambda one: is_over(one) or one.request_counts.completed >= before + 3)  # noqa: B023
        num_kills += seen.status == "in_progress"
        shared.kill()
        shared.start()
    assert num_kills, "it ended before it could be killed"
    found = wait_for(shared, batch, is_over)
    assert (found.status, found.request_counts.total) == ("completed", 60)
    assert (found.request_counts.completed, found.request_counts.failed) == (58, 2)
    good, bad = answers(shared, found.output_file_id), answers(shared, found.error_file_id)
    assert set(bad) == {"line-7", "line-8"}
    assert set(good) | set(bad) == {f"line-{number}" for number in range(60)}
    assert [bad[name]["response"]["status_code"] for name in sorted(bad)] == [400, 404]
    peaceful = wait_for(shared, begin(shared.client(), lines), is_over)
    assert answers(shared, peaceful.output_file_id) == good
    assert all(len(one["response"]["body"]["choices"][0]["logprobs"]["tokens"]) > 0 for one in good.values())


def test_every_endpoint(shared: Shared) -> None:
    client, messages = shared.client(), [{"role": "user", "content": "Once"}]
    batch = wait_for(shared, begin(client, [line(1, CHAT, messages=messages, max_tokens=4)], CHAT), is_over)
    assert answers(shared, batch.output_file_id)["line-1"]["response"]["body"]["object"] == "chat.completion"
    route = "/v1/embeddings"
    batch = wait_for(shared, begin(client, [line(1, route, input=["Once", [1, 403]])], route), is_over)
    assert len(answers(shared, batch.output_file_id)["line-1"]["response"]["body"]["data"]) == 2
    listed = [one.id for one in client.batches.list(limit=1)]
    assert listed[0] == batch.id
    assert len(listed) >= 2, "pages follow each other"


def test_cancel(shared: Shared) -> None:
    client = shared.client()
    lines = [line(number, prompt="Once", max_tokens=400, ignore_eos=True, n=4) for number in range(50)]
    running, waiting = begin(client, lines), begin(client, lines)
    wait_for(shared, running, lambda one: one.request_counts.completed > 0)
    assert client.batches.cancel(waiting).status == "cancelled"
    assert client.batches.cancel(running).status in ("cancelling", "cancelled")
    found = wait_for(shared, running, is_over)
    assert found.status == "cancelled"
    assert len(answers(shared, found.output_file_id)) == found.request_counts.completed < 50
    with pytest.raises(BadRequestError, match="nothing to cancel"):
        client.batches.cancel(running)


def test_nobody_sees_anothers(shared: Shared) -> None:
    alice, bob = shared.client(), shared.client(shared.bob)
    file = upload(alice, [line(1, prompt="Once", max_tokens=2)])
    batch = alice.batches.create(input_file_id=file, endpoint=COMPLETIONS, completion_window=WINDOW).id
    assert file in [one.id for one in alice.files.list()]
    assert [*bob.files.list()] == [*bob.batches.list()] == []
    attempts: list[Callable[[], Any]] = [
        lambda: bob.files.retrieve(file), lambda: bob.files.content(file), lambda: bob.files.delete(file),
        lambda: bob.batches.retrieve(batch), lambda: bob.batches.cancel(batch),
        lambda: bob.batches.create(input_file_id=file, endpoint=COMPLETIONS, completion_window=WINDOW),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(NotFoundError):
            attempt()
    wait_for(shared, batch, is_over)
    assert alice.files.retrieve(file).bytes > 0
    assert alice.files.delete(file).deleted
    with pytest.raises(NotFoundError):
        alice.files.content(file)


def test_files_that_are_no_batch(shared: Shared) -> None:
    client = shared.client()
    for text, words in ((b"[", "not JSON"), (b'{"custom_id": "a", "url": "/v1/chat/completions"}', "another url")):
        file = client.files.create(file=("in.jsonl", text), purpose="batch").id
        batch = client.batches.create(input_file_id=file, endpoint=COMPLETIONS, completion_window=WINDOW)
        found = wait_for(shared, batch.id, is_over)
        assert found.status == "failed"
        assert words in found.errors.data[0].message


def test_bounds(shared: Shared) -> None:
    headers = {"Authorization": f"Bearer {shared.alice}"}

    def post(content: bytes, **form: str) -> httpx.Response:
        files = {"file": ("in.jsonl", content)}
        return httpx.post(f"{shared.server.url}/files", headers=headers, files=files, data=form, timeout=300)

    assert post(b"x" * 100_001, purpose="batch").status_code == 413
    assert post(b"", purpose="batch").status_code == 400
    assert post(b"x", purpose="assistants").status_code == 400
    assert post(b"x").status_code == 400
    body = {"input_file_id": "file-x", "endpoint": COMPLETIONS, "completion_window": "24h"}
    for more, status in (({}, 404), ({"completion_window": "9d"}, 400), ({"endpoint": "/v1/images"}, 400)):
        reply = httpx.post(f"{shared.server.url}/batches", json={**body, **more}, headers=headers)
        assert reply.status_code == status, reply.text
    for path in ("..%2f..%2fkeys.toml", "..", "%00"):
        assert httpx.get(f"{shared.server.url}/files/{path}/content", headers=headers).status_code in (404, 405)


def test_a_folder_has_one_server(shared: Shared) -> None:
    with pytest.raises(AssertionError, match="another server"):
        Server(stories_gguf(), "--state-dir", str(shared.folder / "state"))


def test_what_the_server_keeps_of_a_file_or_batch_is_not_shown(shared: Shared) -> None:
    batch = begin(shared.client(), [line(1, prompt="Once", max_tokens=1)])
    wait_for(shared, batch, is_over)
    headers = {"Authorization": f"Bearer {shared.alice}"}
    for path in ("files", "batches", f"batches/{batch}", f"files/{upload(shared.client(), [line(1, prompt='a')])}"):
        shown = httpx.get(f"{shared.server.url}/{path}", headers=headers).text
        assert '"id"' in shown
        assert "owner" not in shown
        assert "sha256" not in shown
