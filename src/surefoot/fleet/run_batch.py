"""`surefoot run-batch --fleet`: the lines of a batch over all servers of a fleet.

The command is a gateway of its own. An answer whose server dies goes on at another; an answer is written once, by one
process. So the output is that of one machine, whatever dies meanwhile.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from surefoot.fleet.failover import FleetAnswer, GaveUp, NoReplicaAvailable, ReplyHead
from surefoot.fleet.frames import ForwardedRequest
from surefoot.fleet.members import CONNECT_S, Members
from surefoot.fleet.replica_transport import ReplicaTransport
from surefoot.fleet.request_names import PromptText
from surefoot.server.access.request_context import ReplyIdentity, RequestContext
from surefoot.server.batch.disk import Disk
from surefoot.server.batch.input_lines import BatchLine
from surefoot.server.batch.lines import FAILED, Slots, answer_all, check_line
from surefoot.server.batch.run_batch import NUM_AHEAD, Report, Write, fill_answers, patient_context
from surefoot.server.errors import ApiError

STALL_S = 86_400.0  # without a token, after which a line is given up: lines wait for people's requests
PASSING = (429, 503, 504)  # the line is tried again


@dataclass(frozen=True)
class FleetAccess:
    """Where the servers are, and how to be let in."""

    urls: Sequence[str]
    fleet_key: str
    client_key: str = ""  # if the servers have keys
    max_running: int = 32  # answers at once on each server


def run_batch_on_fleet(access: FleetAccess, source: Path, target: Path, name: str | None, report: Report) -> int:
    """Answer the lines of `source` that `target` has no answer for. Returns how many there were. name: the model's, in
    place of the one that the lines name."""
    return fill_answers(source, target, name, partial(_answer_on_fleet, access), report)


async def _answer_on_fleet(access: FleetAccess, lines: Iterator[BatchLine], write: Write) -> None:
    timeout = httpx2.Timeout(None, connect=CONNECT_S)
    async with httpx2.AsyncClient(transport=ReplicaTransport(), timeout=timeout, trust_env=False) as client:
        members = Members(access.urls, access.fleet_key, client)
        watching = asyncio.ensure_future(members.watch())
        slots = Slots(NUM_AHEAD * access.max_running * len(access.urls))
        try:
            answer = partial(answer_line_on_fleet, members, access.client_key)
            await answer_all(answer, Disk(), lines, slots, patient_context, write)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


async def answer_line_on_fleet(
    members: Members, client_key: str, line: BatchLine, context: RequestContext
) -> tuple[int, dict[str, Any]]:
    """An `AnswerLine`, once it has its fleet."""
    path, given = check_line(line)
    body = json.dumps(given).encode()
    headers = [("host", "127.0.0.1"), ("content-type", "application/json"), ("content-length", str(len(body)))]
    if client_key:
        headers.append(("authorization", f"Bearer {client_key}"))
    identity = replace(ReplyIdentity.draw(context.request, context.created), seed=line.seed)
    request = ForwardedRequest("POST", path, "", tuple(headers), body, identity, is_patient=True)
    prompt = PromptText.of(body, client_key)
    return await _whole_reply(FleetAnswer(members, request, prompt, client_key, STALL_S))


async def _whole_reply(answer: FleetAnswer) -> tuple[int, dict[str, Any]]:
    """Status and body. Raises ApiError if the line may be tried again."""
    head, body = ReplyHead(500, ()), bytearray()
    try:
        async with aclosing(answer.parts()) as parts:  # type: ignore[type-var]
            async for part in parts:
                if isinstance(part, ReplyHead):
                    head = part
                else:
                    body += part
    except NoReplicaAvailable as error:
        raise ApiError(503, str(error)) from error
    except GaveUp as error:
        raise ApiError(500, str(error), code=FAILED) from error
    if head.status in PASSING:
        raise ApiError(503, "the servers are busy", headers={"Retry-After": dict(head.headers).get("retry-after", "1")})
    return head.status, json.loads(body)
