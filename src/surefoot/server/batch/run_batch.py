"""`surefoot run-batch`: a file of requests answered without HTTP."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.api.answer_file import AnswerFile
from surefoot.api.async_llm import SWITCH_S, AsyncLLM
from surefoot.api.batch import BatchLine, read_lines
from surefoot.api.llm import LLM
from surefoot.server.access.keys import ANYONE
from surefoot.server.access.request_context import RequestContext
from surefoot.server.batch.disk import Disk
from surefoot.server.batch.lines import Slots, answer_all
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings

NUM_AHEAD = 4  # requests queued in the engine for each that can run
NO_LIMIT = 1 << 30

Report = Callable[[int, int], None]


def run_batch(llm: LLM, source: Path, target: Path, name: str, report: Report = lambda done, total: None) -> int:
    """Answer the lines of `source` that `target` has no answer for. Returns how many there were."""
    ids = {line.custom_id: line.id for line in read_lines(source)}
    with AnswerFile(target, ids) as answers:
        num_left = len(ids) - len(answers.done)
        report(len(answers.done), len(ids))
        try:
            if num_left:
                sys.setswitchinterval(SWITCH_S)
                asyncio.run(_run(llm, _left(source, answers, name), answers, name, lambda done: report(done, len(ids))))
            answers.sync()
        except OSError as error:
            progress = f"{len(answers.done)} of {len(ids)} lines are answered"
            advice = "correct that, then resume with the same command"
            raise OSError(f"{target}: {error.strerror or error} ({progress}): {advice}") from None
    return num_left


def _left(source: Path, answers: AnswerFile, name: str) -> Iterator[BatchLine]:
    """The lines without an answer, with the chosen model in place of the one that they name."""
    for line in read_lines(source):
        if line.custom_id not in answers.done:
            body = line.content.get("body")
            content = {**line.content, "body": {**body, "model": name}} if isinstance(body, dict) else line.content
            yield replace(line, content=content)


async def _run(
    llm: LLM, lines: Iterator[BatchLine], answers: AnswerFile, name: str, report: Callable[[int], None]
) -> None:
    settings = ServerSettings(model_name=name, max_queue=NO_LIMIT, deadline_s=NO_LIMIT)
    service = Service(AsyncLLM(llm), settings, fingerprint="")

    def write(line: BatchLine, status: int, body: dict[str, Any]) -> None:
        answers.write(line, status, body)
        report(len(answers.done))

    def context_of(line: BatchLine) -> RequestContext:
        return RequestContext(ANYONE, line.content.get("url", ""), request=line.digest[:32], is_patient=True)

    service.llm.start()
    try:
        slots = Slots(NUM_AHEAD * service.llm.max_running)
        await answer_all(service, Disk(), lines, slots, context_of, write)
    finally:
        await service.llm.stop()
