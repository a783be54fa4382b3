"""A file of requests answered without HTTP: `surefoot run-batch`."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.api.answers import AnswerFile
from surefoot.api.async_llm import AsyncLLM
from surefoot.api.batch import Line, read_lines
from surefoot.api.llm import LLM
from surefoot.server.asker import Asker
from surefoot.server.disk import Disk
from surefoot.server.keys import ANYONE
from surefoot.server.lines import Slots, answer_all
from surefoot.server.serve import SWITCH_S
from surefoot.server.service import Service
from surefoot.server.settings import Settings

NUM_AHEAD = 4  # requests given to the engine for each that can run
NO_LIMIT = 1 << 30

Report = Callable[[int, int], None]


def run_batch(llm: LLM, source: Path, target: Path, name: str, report: Report = lambda done, total: None) -> int:
    """Write a line for each of source's lines that target lacks: how many there were to do."""
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
            advice = "see to it, then go on with the same command"
            raise OSError(f"{target}: {error.strerror or error} ({progress}): {advice}") from None
    return num_left


def _left(source: Path, answers: AnswerFile, name: str) -> Iterator[Line]:
    """Whatever model the lines name, whoever runs this has chosen one."""
    for line in read_lines(source):
        if line.custom_id not in answers.done:
            body = line.content.get("body")
            content = {**line.content, "body": {**body, "model": name}} if isinstance(body, dict) else line.content
            yield replace(line, content=content)


async def _run(llm: LLM, lines: Iterator[Line], answers: AnswerFile, name: str, report: Callable[[int], None]) -> None:
    settings = Settings(model_name=name, max_queue=NO_LIMIT, deadline_s=NO_LIMIT)
    service = Service(AsyncLLM(llm), settings, fingerprint="")

    def write(line: Line, status: int, body: dict[str, Any]) -> None:
        answers.write(line, status, body)
        report(len(answers.done))

    def asker_of(line: Line) -> Asker:
        return Asker(ANYONE, line.content.get("url", ""), request=line.digest[:32], is_patient=True)

    service.llm.start()
    try:
        slots = Slots(NUM_AHEAD * llm.room.scheduling.max_running)
        await answer_all(service, Disk(), lines, slots, asker_of, write)
    finally:
        await service.llm.stop()
