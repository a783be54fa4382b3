"""`surefoot run-batch`: a file of requests in, a file of answers out."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from surefoot.api.async_llm import SWITCH_S, AsyncLLM
from surefoot.api.fingerprint import fingerprint
from surefoot.api.llm import LLM
from surefoot.server.access.request_context import RequestContext
from surefoot.server.access.shares import ANYONE
from surefoot.server.batch.answer_file import AnswerFile
from surefoot.server.batch.disk import Disk
from surefoot.server.batch.input_lines import BatchLine, read_lines
from surefoot.server.batch.lines import Slots, answer_all, answer_line
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings

NUM_AHEAD = 4  # requests queued in the engine for each that can run
NO_LIMIT = 1 << 30

Report = Callable[[int, int], None]
Write = Callable[[BatchLine, int, dict[str, Any]], None]  # a line's answer: its status and body
AnswerLines = Callable[[Iterator[BatchLine], Write], Coroutine[Any, Any, None]]


def run_batch(llm: LLM, source: Path, target: Path, name: str, report: Report = lambda done, total: None) -> int:
    """Answer the lines of `source` that `target` has no answer for, without HTTP. Returns how many there were."""
    sys.setswitchinterval(SWITCH_S)
    return fill_answers(source, target, name, partial(_answer_here, llm, name), report)


def fill_answers(source: Path, target: Path, name: str | None, answer_lines: AnswerLines, report: Report) -> int:
    """The same, by a function that answers lines. name: the model's, in place of the one that the lines name; None:
    theirs."""
    ids = {line.custom_id: line.id for line in read_lines(source)}
    with AnswerFile(target, ids) as answers:
        num_left = len(ids) - len(answers.done)
        report(len(answers.done), len(ids))

        def write(line: BatchLine, status: int, body: dict[str, Any]) -> None:
            answers.write(line, status, body)
            report(len(answers.done), len(ids))

        try:
            if num_left:
                asyncio.run(answer_lines(_left(source, answers, name), write))
            answers.sync()
        except OSError as error:
            progress = f"{len(answers.done)} of {len(ids)} lines are answered"
            advice = "correct that, then resume with the same command"
            raise OSError(f"{target}: {error.strerror or error} ({progress}): {advice}") from None
    return num_left


def _left(source: Path, answers: AnswerFile, name: str | None) -> Iterator[BatchLine]:
    """The lines without an answer, with the chosen model in place of the one that they name."""
    for line in read_lines(source):
        if line.custom_id not in answers.done:
            yield line if name is None else _with_model(line, name)


def _with_model(line: BatchLine, name: str) -> BatchLine:
    body = line.content.get("body")
    return replace(line, content={**line.content, "body": {**body, "model": name}}) if isinstance(body, dict) else line


def patient_context(line: BatchLine) -> RequestContext:
    """Of a line whose file is the only client."""
    url = line.content.get("url", "")
    return RequestContext(
        ANYONE, url, request=line.digest[:32], created=line.created, is_patient=True, num_body_bytes=line.num_bytes
    )


async def _answer_here(llm: LLM, name: str, lines: Iterator[BatchLine], write: Write) -> None:
    settings = ServerSettings(model_name=name, max_queue=NO_LIMIT, deadline_s=NO_LIMIT)
    service = Service(AsyncLLM(llm), settings, str(fingerprint(llm)))
    service.llm.start()
    try:
        slots = Slots(NUM_AHEAD * service.llm.max_running)
        await answer_all(partial(answer_line, service), Disk(), lines, slots, patient_context, write)
    finally:
        await service.llm.stop()
