"""Lines of a batch's file: each is a request to one of the routes, by somebody who does not wait."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from pydantic import ValidationError

from surefoot.api.batch import Line
from surefoot.server import chat, completions, embeddings
from surefoot.server.asker import Asker
from surefoot.server.conversation import start_conversation
from surefoot.server.disk import Disk
from surefoot.server.errors import ApiError, bad_request, of_validation
from surefoot.server.schemas.base import Body, SamplingFields
from surefoot.server.schemas.chat import ChatRequest
from surefoot.server.schemas.completions import CompletionRequest
from surefoot.server.schemas.embeddings import EmbeddingRequest
from surefoot.server.schemas.unknown import noting
from surefoot.server.service import Run, Service

DONE = 200
FAILED = "server_failed"
MOST_FAILURES = 3  # of steps or of the server itself that a line has a part in, before it is told
LOG = logging.getLogger(__name__)


class Answering(Protocol):
    run: Run

    async def reply(self) -> dict[str, Any]: ...


Start = Callable[[Service, Any, Asker], Awaitable[Answering]]


async def _start_chat(service: Service, body: ChatRequest, asker: Asker) -> Answering:
    return chat.Chat(await start_conversation(service, body, asker))


ROUTES: dict[str, tuple[type[Body], Start]] = {
    chat.ROUTE: (ChatRequest, _start_chat),
    completions.ROUTE: (CompletionRequest, completions.start_completion),
    embeddings.ROUTE: (EmbeddingRequest, embeddings.start_embeddings),
}


class Slots:
    """Room for lines in flight. They come in one after the other: a dear one is not passed by cheap ones for ever."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._num_free = num_slots
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, cost: int) -> int:
        """How many it took."""
        cost = min(cost, self.num_slots)
        async with self._turn:
            while self._num_free < cost:
                self._freed.clear()
                await self._freed.wait()
            self._num_free -= cost
        return cost

    def give_back(self, cost: int) -> None:
        self._num_free += cost
        self._freed.set()


async def answer_all(
    service: Service,
    disk: Disk,
    lines: Iterator[Line],
    slots: Slots,
    asker_of: Callable[[Line], Asker],
    write: Callable[[Line, int, dict[str, Any]], None],
) -> None:
    """Write an answer for each line, as they end. Cancelled, it leaves the rest for another time.

    What lines and write raise ends all of this, and is raised here.
    """

    async def one(line: Line) -> None:
        await disk.run(write, line, *await _answer_patiently(service, line, asker_of))

    try:
        async with asyncio.TaskGroup() as group:
            while (line := await disk.run(next, lines, None)) is not None:
                cost = await slots.take(cost_of(line))
                # A task that is cancelled before its first step never runs: its slots come back all the same.
                group.create_task(one(line)).add_done_callback(lambda _, cost=cost: slots.give_back(cost))  # type: ignore[misc]
    except BaseExceptionGroup as several:
        await _take_stray_cancellation()
        raise several.exceptions[0] from None


async def _take_stray_cancellation() -> None:
    """Before Python 3.13, a task group that fails may leave its own cancellation to the next wait of its task."""
    task = asyncio.current_task()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if task is None or task.cancelling():
            raise


def cost_of(line: Line) -> int:
    """Answers that it asks for, as far as can be told before its body is read."""
    body = line.content.get("body")
    n = body.get("n") if isinstance(body, dict) else None
    return n if isinstance(n, int) and n > 0 else 1


async def _answer_patiently(
    service: Service, line: Line, asker_of: Callable[[Line], Asker]
) -> tuple[int, dict[str, Any]]:
    """What is not the line's fault passes: a full queue, a rate, a server that is shutting down, a failed step."""
    num_failed = 0
    while True:
        try:
            return await answer(service, line, asker_of(line))
        except ApiError as error:
            problem = error
        except Exception:
            LOG.exception("line %d of a batch failed", line.number)
            problem = ApiError(500, "the server failed on this line: see its log", code=FAILED)
        num_failed += problem.code in (FAILED, "EngineFailed")
        is_passing = problem.code in (FAILED, "EngineFailed") and num_failed < MOST_FAILURES
        if problem.status not in (429, 503) and not is_passing:
            return problem.status, problem.as_openai()
        await asyncio.sleep(float(problem.headers.get("Retry-After", 1)) * (0.5 + secrets.randbelow(100) / 100))


async def answer(service: Service, line: Line, asker: Asker) -> tuple[int, dict[str, Any]]:
    """Raises ApiError, as the line's route does."""
    body, start = read_body(service, line)
    answering = await start(service, body, asker)
    try:
        return DONE, await answering.reply()
    finally:
        answering.run.close()


def read_body(service: Service, line: Line) -> tuple[Body, Start]:
    if line.problem is not None:
        raise bad_request(line.problem)
    content = line.content
    given, url = content.get("body"), content.get("url")
    if content.get("method", "POST") != "POST" or not isinstance(given, dict):
        raise bad_request("a line has the method POST, a url and a body")
    if not isinstance(url, str) or url not in ROUTES:
        raise bad_request(f"there is no {str(url)[:80]!r}: use one of {', '.join(ROUTES)}")
    kind, start = ROUTES[url]
    if given.get("stream"):
        raise bad_request("stream does not go with a file: leave it out", "stream")
    try:
        with noting(service.settings.strict_parameters) as unknown:
            body = kind.model_validate(given)
    except ValidationError as error:
        raise of_validation(error.errors()) from None
    service.metrics.ignored.inc(unknown.count)
    if isinstance(body, SamplingFields) and body.seed is None:
        body.seed = line.seed
    return body, start
