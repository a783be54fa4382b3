"""Batch files: what comes out, and that a killed run goes on where it was."""

import fcntl
import functools
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from surefoot import LLM, SamplingParams
from surefoot.server.batch.input_lines import read_lines
from surefoot.server.batch.run_batch import run_batch
from tests.cli.process import COMMAND, run
from tests.server.batch.run_batch import CHAT, COMPLETIONS, read
from tests.stories import stories_gguf
from tests.waiting import wait_for

pytestmark = pytest.mark.long

AS_HERE = ("--pooling", "mean")  # the options of `llm`
WRITTEN = 1_790_000_000  # Unix time


@functools.cache
def llm() -> LLM:
    return LLM(stories_gguf(), threads=2, pooling="mean")


def line(number: int, url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": {"model": str(stories_gguf()), **body}}


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    os.utime(path, (WRITTEN, WRITTEN))  # the time of its requests
    return path


def answers(tmp_path: Path, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    target = tmp_path / "out.jsonl"
    target.unlink(missing_ok=True)
    assert run_batch(llm(), write(tmp_path / "in.jsonl", list(lines)), target, "tiny") == len(lines)
    found = read(target)
    return [found[one["custom_id"]]["response"] for one in lines]


def test_replies_in_openais_form(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Once upon a time"}]}]
    chat, text, several = answers(
        tmp_path,
        line(1, CHAT, messages=messages, temperature=0, max_tokens=12, logprobs=True, top_logprobs=2),
        line(2, COMPLETIONS, prompt="Once upon a time", temperature=0, max_tokens=12, logprobs=1),
        line(3, COMPLETIONS, prompt=["One day", [1, 403, 407]], n=2, seed=3, max_tokens=5, echo=True, stop="zzz"),
    )
    assert chat["status_code"] == text["status_code"] == 200
    (choice,) = chat["body"]["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    assert "".join(one["token"] for one in choice["logprobs"]["content"]) == choice["message"]["content"]
    assert all(len(one["top_logprobs"]) == 2 for one in choice["logprobs"]["content"])
    assert chat["body"]["usage"]["completion_tokens"] == 12
    (other,) = text["body"]["choices"]
    assert other["text"] == choice["message"]["content"]
    assert other["logprobs"]["text_offset"][:2] == [0, len(other["logprobs"]["tokens"][0])]
    assert (chat["body"]["object"], text["body"]["object"]) == ("chat.completion", "text_completion")
    assert [one["index"] for one in several["body"]["choices"]] == [0, 1, 2, 3]
    assert several["body"]["choices"][1]["text"].startswith("One day")


def test_without_a_seed_the_line_is_the_seed(tmp_path: Path) -> None:
    asked = [line(number, COMPLETIONS, prompt="Once", max_tokens=24) for number in range(8)]
    first, again = answers(tmp_path, *asked), answers(tmp_path, *asked)
    assert first == again
    assert len({one["body"]["choices"][0]["text"] for one in first}) > 1
    (seeded,) = answers(tmp_path, line(3, COMPLETIONS, prompt="Once", max_tokens=8, seed=5))
    (expected,) = llm().generate("Once", SamplingParams(seed=5, max_tokens=8))
    assert seeded["body"]["choices"][0]["text"] == expected.text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (line(1, "/v1/images", input="a"), "use one of /v1/chat"),
        (line(1, COMPLETIONS, prompt="a", best_of=3, n=99), "n: "),
        (line(1, COMPLETIONS, prompt="a", top_p=3), "top_p"),
        (line(1, COMPLETIONS, prompt="a", stream=True), "stream"),
        (line(1, COMPLETIONS, prompt=[]), "at least 1"),
        (line(1, COMPLETIONS, prompt=[600]), "vocabulary"),
        (line(1, COMPLETIONS, prompt="a", temperature="hot"), "temperature"),
        (line(1, COMPLETIONS, prompt=["a", [600]], max_tokens=3), "vocabulary"),
        (line(1, CHAT, messages=[]), "messages"),
        (line(1, CHAT, messages=[{"role": "user", "content": "a"}], max_tokens=-9), "max_tokens"),
        (line(1, COMPLETIONS, prompt=[1] * 9999, max_tokens=3), "reduce the length"),
        (line(1, CHAT, messages=[{"content": "a"}]), "role"),
        (line(1, CHAT, messages=[{"role": "user", "content": "a"}], logit_bias={"a": 1}), "logit_bias"),
        ({"custom_id": "line-1", "url": CHAT}, "a body"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_line_gets_its_answer_and_stops_nobody(tmp_path: Path, wrong: dict, words: str) -> None:
    refused, good = answers(tmp_path, wrong, line(2, COMPLETIONS, prompt="Once", max_tokens=3))
    assert refused["status_code"] == 400
    assert words in refused["body"]["error"]["message"]
    assert good["status_code"] == 200
    assert not llm().engine.has_work


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}\n{", "line 1 has no custom_id"),
        ('{"custom_id": "a"}\n{"custom_id": "a"}', "line 2 has"),
        ("[", "line 1 is"),
    ],
)
def test_files_that_are_no_batch(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "in.jsonl").write_text(text)
    with pytest.raises(ValueError, match=words):
        list(read_lines(tmp_path / "in.jsonl"))


def test_output_of_another_input_is_refused(tmp_path: Path) -> None:
    answers(tmp_path, line(1, COMPLETIONS, prompt="Once", max_tokens=3))
    changed = write(tmp_path / "in.jsonl", [line(1, COMPLETIONS, prompt="Twice", max_tokens=3)])
    with pytest.raises(ValueError, match="another input"):
        run_batch(llm(), changed, tmp_path / "out.jsonl", "tiny")
    (tmp_path / "notes").write_text("precious\n")
    with pytest.raises(ValueError, match="something else"):
        run_batch(llm(), changed, tmp_path / "notes", "tiny")
    assert (tmp_path / "notes").read_text() == "precious\n"


def test_a_torn_line_is_done_again(tmp_path: Path) -> None:
    lines = [line(number, COMPLETIONS, prompt="Once", max_tokens=4) for number in range(3)]
    answers(tmp_path, *lines)
    target, whole = tmp_path / "out.jsonl", read(tmp_path / "out.jsonl")
    data = target.read_bytes()
    second = data.index(b"\n", data.index(b"\n") + 1) + 1
    for cut in (len(data) - 1, second + 1, second, 5, 0):
        target.write_bytes(data[:cut])
        num_whole = data[:cut].count(b"\n")
        assert run_batch(llm(), tmp_path / "in.jsonl", target, "tiny") == 3 - num_whole
        assert read(target) == whole


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [line(1, COMPLETIONS, prompt="Once", max_tokens=3)])
    with (tmp_path / "out.jsonl").open("a+b") as out:
        fcntl.flock(out, fcntl.LOCK_EX)  # of this open file: another one in the same process is a stranger to it
        with pytest.raises(ValueError, match="another run"):
            run_batch(llm(), source, tmp_path / "out.jsonl", "tiny")


def num_lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_killed_again_and_again(tmp_path: Path) -> None:
    """kill -9 while lines are being written; at the end every line is there once, with the bits of a run in peace."""
    lines = [
        line(number, COMPLETIONS, prompt=f"Once upon a time {number}", max_tokens=40 + number % 7, logprobs=1)
        for number in range(60)
    ]
    source, target = write(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    num_kills = 0
    for _ in range(2):
        before = num_lines(target)
        words = ["run-batch", str(source), str(target), "--max-running", "8", *AS_HERE]
        process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: process.poll() is not None or num_lines(target) >= before + 5)  # noqa: B023
        num_kills += process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert num_kills, "it ended before it could be killed"
    assert num_lines(target) < len(lines)
    done = run("run-batch", str(source), str(target), *AS_HERE)
    assert done.returncode == 0, done.stderr
    peaceful = tmp_path / "peaceful.jsonl"
    run_batch(llm(), source, peaceful, stories_gguf().name)
    assert read(target) == read(peaceful)
    again = run("run-batch", str(source), str(target))
    assert "0 answered" in again.stderr


def test_what_the_routes_know(tmp_path: Path) -> None:
    """Formats, tools and embeddings: a line is a request to the server's own routes."""
    messages = [{"role": "user", "content": "Say it."}]
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    schema |= {"additionalProperties": False}
    chat, vector = answers(
        tmp_path,
        line(1, CHAT, messages=messages, response_format={"type": "json_schema", "json_schema": {"schema": schema}}),
        line(2, "/v1/embeddings", input=["Once upon a time", [1, 403]]),
    )
    assert chat["status_code"] == 200, chat
    assert set(json.loads(chat["body"]["choices"][0]["message"]["content"])) == {"a"}
    assert [len(one["embedding"]) for one in vector["body"]["data"]] == [64, 64]
