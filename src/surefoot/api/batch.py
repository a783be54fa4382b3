"""Files of requests in OpenAI's batch format: a line in, a line out, resumable wherever it was killed.

The output file is the only state. Each line is written whole, as its request ends; the torn end of a killed run is cut
off, and what has a line is not done again. A line's `id` comes from the input line's bytes, so a file that belongs to
other input is refused; without a seed in the body, so does the seed: a batch gives the same bits whenever it is run.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.api.live import LiveRequest
from surefoot.api.llm import LLM
from surefoot.api.openai_body import Asked, parse_body, reply_body

BAD_REQUEST, FAILED, DONE = 400, 500, 200
NUM_AHEAD = 4  # requests given to the engine for each that can run

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Line:
    """One line of the input. number: from 1. digest: of its bytes."""

    number: int
    custom_id: str
    digest: str
    content: Any

    @property
    def id(self) -> str:
        return f"batch_req_{self.digest[:32]}"

    @property
    def seed(self) -> int:
        return int(self.digest[-16:], 16) >> 1


@dataclass
class Job:
    """A line on its way: one request for each of its prompts."""

    line: Line
    asked: Asked
    lives: list[LiveRequest] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return all(live.is_done for live in self.lives)


def run_batch(llm: LLM, source: Path, target: Path, name: str, report: Report = lambda done, total: None) -> int:
    """Write a line for each of source's lines that target lacks: how many there were to do."""
    ids = {line.custom_id: line.id for line in read_lines(source)}
    with target.open("a+b") as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{target} is being written by another run: wait for its end") from None
        done = finished_ids(out, target, ids)
        left = (line for line in read_lines(source) if line.custom_id not in done)
        num_done = len(done)
        report(num_done, len(ids))
        for reply in replies(llm, left, name):
            out.write(json.dumps(reply, ensure_ascii=False).encode() + b"\n")
            out.flush()
            num_done += 1
            report(num_done, len(ids))
        os.fsync(out.fileno())
    return len(ids) - len(done)


def named_model(source: Path) -> str:
    """The model that the lines' bodies name."""
    bodies = (line.content.get("body") for line in read_lines(source))
    names = sorted({str(body.get("model")) for body in bodies if isinstance(body, dict)})
    if len(names) != 1 or names == ["None"]:
        raise ValueError(f"the lines name {', '.join(names) or 'no model'}: say with --model which one to run")
    return names[0]


def read_lines(source: Path) -> Iterator[Line]:
    """Raises ValueError for a line that is no request at all, and for a custom_id that comes twice."""
    seen: set[str] = set()
    with source.open("rb") as lines:
        for number, raw in enumerate(lines, 1):
            text = raw.strip()
            if not text:
                continue
            try:
                content = json.loads(text)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from None
            custom_id = content.get("custom_id") if isinstance(content, dict) else None
            if not isinstance(custom_id, str) or not custom_id:
                raise ValueError(f"line {number} has no custom_id: give each line its own")
            if custom_id in seen:
                raise ValueError(f"line {number} has the custom_id {custom_id!r} of a line before: give each its own")
            seen.add(custom_id)
            yield Line(number, custom_id, hashlib.sha256(text).hexdigest(), content)


def finished_ids(out: Any, target: Path, ids: dict[str, str]) -> set[str]:
    """What has a whole line already. A last line that was cut off is removed; lines of other input are refused."""
    done: set[str] = set()
    out.seek(0)
    end = 0
    for raw in out:
        if not raw.endswith(b"\n"):
            break
        try:
            reply = json.loads(raw)
            custom_id, number = reply["custom_id"], reply["id"]
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{target} holds something else than a batch's output: give another file") from None
        if ids.get(custom_id) != number:
            raise ValueError(f"{target} belongs to another input (see {custom_id!r}): give another file, or remove it")
        done.add(custom_id)
        end += len(raw)
    out.truncate(end)
    out.seek(0, os.SEEK_END)
    return done


def replies(llm: LLM, lines: Iterator[Line], name: str) -> Iterator[dict[str, Any]]:
    """A reply for each line, as they end. Lines are taken while the engine has room for more."""
    jobs: list[Job] = []
    most = NUM_AHEAD * llm.room.scheduling.max_running
    while True:
        while len(jobs) < most and (line := next(lines, None)) is not None:
            try:
                jobs.append(start(llm, line))
            except (ValueError, TypeError) as error:
                yield failure(line, BAD_REQUEST, str(error))
        if not jobs:
            return
        llm.step()
        for job in [job for job in jobs if job.is_done]:
            jobs.remove(job)
            yield finish(llm, job, name)


def start(llm: LLM, line: Line) -> Job:
    content = line.content
    if content.get("method", "POST") != "POST" or not isinstance(content.get("body"), dict):
        raise ValueError("a line has the method POST, a url and a body")
    asked = parse_body(content.get("url", ""), content["body"], line.seed)
    job = Job(line, asked)
    try:
        if asked.is_chat:
            prompt = llm.render(asked.messages, tools=asked.tools, **asked.variables)
            job.lives.append(llm.submit(prompt, asked.params, rendered=True))
        for one in asked.prompts:
            job.lives.append(llm.submit(one, asked.params))
    except BaseException:
        leave(llm, job)
        raise
    return job


def finish(llm: LLM, job: Job, name: str) -> dict[str, Any]:
    outputs = [live.output() for live in job.lives]
    leave(llm, job)
    if errors := [answer.error for output in outputs for answer in output.outputs if answer.error is not None]:
        return failure(job.line, FAILED, errors[0])
    number = job.line.digest[:32]
    return reply(
        job.line, DONE, reply_body(job.asked, outputs, name, number, int(time.time()), llm.tokenizer.token_bytes)
    )


def leave(llm: LLM, job: Job) -> None:
    for live in job.lives:
        llm.leave(live)


def reply(line: Line, status: int, body: dict[str, Any]) -> dict[str, Any]:
    response = {"status_code": status, "request_id": line.digest[:32], "body": body}
    return {"id": line.id, "custom_id": line.custom_id, "response": response, "error": None}


def failure(line: Line, status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status == BAD_REQUEST else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": None}
    return reply(line, status, {"error": error})
