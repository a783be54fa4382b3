"""Answers the lines of a batch's file. Each line is a request to one of the routes, for which no client waits."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from surefoot.server.access.request_context import RequestContext
from surefoot.server.access.shares import asking_user
from surefoot.server.answer.chat import ChatCompletion
from surefoot.server.answer.completions import start_completion
from surefoot.server.answer.conversation import start_conversation
from surefoot.server.answer.streaming import WholeAnswer
from surefoot.server.answer.vectors import start_embeddings, start_reranking
from surefoot.server.batch.disk import Disk
from surefoot.server.batch.input_lines import BatchLine
from surefoot.server.bodies import validate
from surefoot.server.errors import ApiError, bad_request
from surefoot.server.schemas.base import Body, SamplingFields
from surefoot.server.schemas.chat import ChatRequest
from surefoot.server.schemas.completions import CompletionRequest
from surefoot.server.schemas.dialects import noting_unknown
from surefoot.server.schemas.vectors import EmbeddingRequest, RerankRequest
from surefoot.server.service import Service

DONE = 200
FAILED = "server_failed"
MOST_FAILURES = 3  # failures of steps or of the server, after which a line gets an error as its answer
LOG = logging.getLogger(__name__)


Start = Callable[[Service, Any, RequestContext], Awaitable[WholeAnswer]]
# Status and body of a line's answer. Raises ApiError as the line's route does.
AnswerLine = Callable[[BatchLine, RequestContext], Awaitable[tuple[int, dict[str, Any]]]]


async def _start_chat(service: Service, body: ChatRequest, context: RequestContext) -> WholeAnswer:
    return ChatCompletion(await start_conversation(service, body, context))


ROUTES: dict[str, tuple[type[Body], Start]] = {
    "/v1/chat/completions": (ChatRequest, _start_chat),
    "/v1/completions": (CompletionRequest, start_completion),
    "/v1/embeddings": (EmbeddingRequest, start_embeddings),
    "/v1/rerank": (RerankRequest, start_reranking),
}


class Slots:
    """Slots for lines in flight, taken in order: cheap lines do not overtake an expensive one for ever."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._num_free = num_slots
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, cost: int) -> int:
        """Take that many slots, or all. Returns how many were taken."""
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
    answer: AnswerLine,
    disk: Disk,
    lines: Iterator[BatchLine],
    slots: Slots,
    context_of: Callable[[BatchLine], RequestContext],
    write: Callable[[BatchLine, int, dict[str, Any]], None],
) -> None:
    """Answer each line and write the answers as they end. If cancelled, the remaining lines have no answer.

    An exception raised by `lines` or `write` ends the run and is raised here.
    """

    async def answer_and_write(line: BatchLine) -> None:
        await disk.run(write, line, *await _answer_patiently(answer, line, context_of))

    try:
        async with asyncio.TaskGroup() as group:
            while (line := await disk.run(next, lines, None)) is not None:
                cost = await slots.take(cost_of(line))
                # A task that is cancelled before its first step never runs: its slots come back all the same.
                group.create_task(answer_and_write(line)).add_done_callback(lambda _, cost=cost: slots.give_back(cost))  # type: ignore[misc]
    except BaseExceptionGroup as several:
        await _take_stray_cancellation()
        raise several.exceptions[0] from None


async def _take_stray_cancellation() -> None:
    """Before Python 3.13, a failing task group may leave its own cancellation to its task's next await."""
    task = asyncio.current_task()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if task is None or task.cancelling():
            raise


def cost_of(line: BatchLine) -> int:
    """The number of answers that a line asks for, as far as its unchecked body tells."""
    body = line.content.get("body")
    n = body.get("n") if isinstance(body, dict) else None
    return n if isinstance(n, int) and n > 0 else 1


async def _answer_patiently(
    answer: AnswerLine, line: BatchLine, context_of: Callable[[BatchLine], RequestContext]
) -> tuple[int, dict[str, Any]]:
    """Retry while the line is not at fault: a full queue, a rate, a server that drains, a failed step."""
    num_failed = 0
    while True:
        try:
            return await answer(line, context_of(line))
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


async def answer_line(service: Service, line: BatchLine, context: RequestContext) -> tuple[int, dict[str, Any]]:
    """An `AnswerLine`, once it has its service."""
    asking_user.set(context.caller.user)
    body, start = await service.body_work.run(line.num_bytes, partial(read_body, service, line))
    answering = await start(service, body, context)
    try:
        return DONE, await answering.reply()
    finally:
        answering.run.close()


def check_line(line: BatchLine) -> tuple[str, dict[str, Any]]:
    """The line's route and body, which is not validated. Raises ApiError for a line that no route could answer."""
    if line.problem is not None:
        raise bad_request(line.problem)
    content = line.content
    given, url = content.get("body"), content.get("url")
    if content.get("method", "POST") != "POST" or not isinstance(given, dict):
        raise bad_request("a line needs the method POST, a url and a body")
    if not isinstance(url, str) or url not in ROUTES:
        raise bad_request(f"a batch cannot use the url {str(url)[:80]!r}: use one of {', '.join(ROUTES)}")
    if given.get("stream"):
        raise bad_request("a line of a batch cannot be streamed: leave stream out", "stream")
    return url, given


def read_body(service: Service, line: BatchLine) -> tuple[Body, Start]:
    url, given = check_line(line)
    kind, start = ROUTES[url]
    with noting_unknown(service.settings.strict_parameters) as unknown:
        body = validate(kind, given)
    service.metrics.ignored.inc(unknown.count)
    if isinstance(body, SamplingFields) and body.seed is None:
        body.seed = line.seed
    return body, start
