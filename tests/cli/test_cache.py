"""`surefoot cache` and `surefoot warm`: what is computed ahead is found by a server, listed, verified and forgotten."""

import json
from pathlib import Path

import httpx
import pytest

from surefoot import LLM, SamplingParams
from surefoot.cli.sizes import format_size
from surefoot.disk_cache import BlockHasher, BlockStore
from surefoot.machine.sizes import size_bytes
from tests.cli.process import run
from tests.server.access.sharing import quick_key
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S, wait_for

DOCUMENT = "Once upon a time there was a little girl named Lily. She loved to play outside in the park. " * 5


def in_folder(folder: Path, *words: str) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = json.loads(run("cache", *words, "--cache-dir", str(folder), "--json").stdout)
    return listed


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warm")
    document, system = folder / "document.txt", folder / "system.json"
    document.write_text(DOCUMENT)
    system.write_text(json.dumps([{"role": "system", "content": DOCUMENT[90:]}]))
    words = ["--text", str(document), "--messages", str(system), "--cache-dir", str(folder / "cache")]
    first, second = (run("warm", str(stories_gguf()), *words, "--packed-cache", "off") for _ in range(2))
    assert first.stdout.endswith(" 0 of them known before\n"), first.stdout + first.stderr
    num_tokens, num_known = int(second.stdout.split()[0]), int(second.stdout.split()[-5])
    assert num_tokens > 200
    assert num_known > 0.8 * num_tokens
    return folder / "cache"


def test_a_question_about_a_document_starts_where_the_question_does(warmed: Path) -> None:
    llm = LLM(stories_gguf(), threads=1, prompt_cache=warmed)
    question = [{"role": "user", "content": DOCUMENT + "\n\nWho was she?"}]
    (output,) = llm.chat(question, SamplingParams(max_tokens=4, temperature=0))
    llm.close()
    assert output.usage.num_cached > 0.8 * output.usage.num_prompt


def test_a_server_finds_what_was_warmed_and_counts_it(warmed: Path) -> None:
    server = Server(stories_gguf(), "--cache-dir", str(warmed), "--max-running", "4")
    try:
        messages = [{"role": "user", "content": DOCUMENT + "\n\nWho was she?"}]
        body = {"messages": messages, "max_tokens": 4, "model": "small"}
        answer = httpx.post(f"{server.url}/chat/completions", json=body, timeout=PATIENCE_S)
        usage = answer.json()["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert cached > 0.8 * usage["prompt_tokens"]
        assert server.metric("surefoot:cache_disk_hit_tokens_total") == cached
        assert server.metric("surefoot:cache_disk_bytes") > 0
        assert server.metric("surefoot:cache_disk_checksum_failures_total") == 0
        (totals,) = in_folder(warmed, "stats")
        assert totals["bytes"] == server.metric("surefoot:cache_disk_bytes")
        busy = run("cache", "prune", "--to", "0", "--cache-dir", str(warmed))
        assert busy.returncode == 1
        assert f"process {server.process.pid} uses the cache" in busy.stderr
    finally:
        server.stop()


def test_a_running_server_is_listed_and_forgets_a_user(tmp_path: Path) -> None:
    file, folder = tmp_path / "keys.toml", tmp_path / "cache"
    keys = {user: quick_key(file, user) for user in ("ann", "bob")}
    server = Server(stories_gguf(), "--cache-dir", str(folder), "--threads", "1", "--keys", str(file))
    try:
        for key in keys.values():
            body = {"prompt": DOCUMENT, "max_tokens": 4, "model": "small"}
            headers = {"Authorization": f"Bearer {key}"}
            httpx.post(f"{server.url}/completions", json=body, headers=headers, timeout=PATIENCE_S).raise_for_status()
        wait_for(lambda: len(in_folder(folder, "ls")) == 2, "both users' blocks on the disk")
        before = in_folder(folder, "ls")
        assert {entry["model"] for entry in before} == {stories_gguf().name}
        forgotten = run("cache", "forget", "--user", "ann", "--cache-dir", str(folder))
        assert f"{before[0]['blocks']} blocks removed" in forgotten.stdout, forgotten.stderr
        (left,) = in_folder(folder, "ls")
        assert left in before
    finally:
        server.stop()
    store = BlockStore(folder, 1 << 40)
    assert [held.namespace for held in store.holdings()] == [BlockHasher(b"").namespace("bob")]
    store.close()


def test_list_verify_forget_and_prune(warmed: Path, tmp_path: Path) -> None:
    (entry,) = in_folder(warmed, "ls")
    assert entry["model"] == stories_gguf().name
    (totals,) = in_folder(warmed, "stats")
    assert totals["blocks"] == entry["blocks"]
    assert " 0 damaged" in run("cache", "verify", "--cache-dir", str(warmed)).stdout
    assert "0 blocks removed" in run("cache", "forget", "--user", "nobody", "--cache-dir", str(warmed)).stdout
    forgotten = run("cache", "forget", "--user", "", "--cache-dir", str(warmed))
    assert f"{entry['blocks']} blocks removed" in forgotten.stdout
    assert in_folder(warmed, "ls") == []
    assert run("cache", "prune", "--to", "0", "--cache-dir", str(warmed)).stdout.endswith("now 0 B\n")
    missing = run("cache", "ls", "--cache-dir", str(tmp_path))
    assert missing.returncode == 1
    assert "there is no prompt cache" in missing.stderr


def test_a_folder_that_cannot_be_used_is_an_error_only_if_it_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    refused = run("warm", str(stories_gguf()), "--text", str(file), "--cache-dir", str(file / "cache"))
    assert refused.returncode == 1
    assert "file" in refused.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [("20GB", 20 * 10**9), ("512MiB", 512 << 20), ("1.5k", 1500), ("7", 7), ("0", 0), ("2 TiB", 2 << 40)],
)
def test_sizes(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


def test_words_that_are_no_sizes() -> None:
    for text in ("", "GB", "-1GB", "5 apples"):
        with pytest.raises(ValueError, match="invalid size"):
            size_bytes(text)
    assert [format_size(number) for number in (0, 999, 1500, 2.5e9, 1e15)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 GB",
        "1e+03 TB",
    ]
