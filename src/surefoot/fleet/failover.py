"""A client's request in a fleet: if its replica dies, hangs or drains, it goes on at another at the very next token.

The gateway keeps the tokens that were told and counts the parts of the reply that it passed on. An answer is a function
of model, request and seed, so this is all that another replica needs.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

import httpx2

from surefoot.api.continuation import SentToken
from surefoot.fleet.members import Member, Members
from surefoot.fleet.request_names import PromptText
from surefoot.fleet.router import NoReplica
from surefoot.server.frames import (
    ANSWER_PATH,
    KEY_HEADER,
    FrameKind,
    FrameReader,
    HandedRequest,
    Headers,
    decode_tokens,
)
from surefoot.server.handover import PrefixHint

LOG = logging.getLogger(__name__)
FIRST_PATIENCE_S = 5.0  # until a replica has said how long its silence may last
PATIENCE_GROWTH = 3.0  # after each silent replica: where several are silent, the machines may be slow, not hung
MOST_ATTEMPTS = 3  # in a row without a new token or part: a request that kills its replicas must not kill them all
OK = 200
TRY_ELSEWHERE = (429, 503)
WAIT_S, POLL_S = 15.0, 0.05  # for a replica to come back
BEGUN_WAIT_S = 120.0  # the same, of a reply that has begun: its client would rather wait than begin anew


@dataclass(frozen=True)
class ReplyHead:
    status: int
    headers: Headers


class ReplicaFailed(RuntimeError):
    """The replica cannot go on with the request."""


class ReplicaSilent(ReplicaFailed):
    """It may be dead, hung or only slow."""


class GaveUp(RuntimeError):
    """No replica could answer the request."""


class NobodyThere(GaveUp):
    """The request is not at fault: no replica takes requests."""


class FleetAnswer:
    """The reply to one request, whichever replicas it comes from."""

    def __init__(self, members: Members, request: HandedRequest, prompt: PromptText, user: str = "") -> None:
        """user: the client's key. Empty: clients have none."""
        self._members = members
        self._user = user
        self._request = request
        self._prompt = prompt
        self._sent: list[SentToken] = []
        self._num_parts = 0
        self._status: int | None = None  # of the head that was passed on
        self._refusal: tuple[ReplyHead, bytes] | None = None  # of a replica that is busy or drains
        self._num_silent = 0  # replicas in a row
        self._hint: PrefixHint | None = None  # where the replica may fetch more of the prompt
        self.num_failovers = 0
        self.member: Member | None = None  # that computes the answer now
        self.handed_at: float | None = None  # when a replica was first asked, on the monotonic clock
        self._used: tuple[float, float] | None = None  # of the client's rates, as the replica that ended it said

    @property
    def used(self) -> tuple[float, float]:
        """Requests and tokens that the client is charged; estimated for a request that did not get to its end."""
        return self._used or (1.0, float(self._prompt.num_tokens + len(self._sent)))

    async def parts(self) -> AsyncIterator[ReplyHead | bytes]:
        """The head, then the parts of the body. Raises GaveUp."""
        tried: set[int] = set()
        num_attempts = 0
        while (member := await self._choose(tried)) is not None:
            progress = len(self._sent), self._num_parts
            try:
                async with aclosing(self._attempt(member)) as parts:  # type: ignore[type-var]
                    async for part in parts:
                        yield part
                return
            except ReplicaFailed as failure:
                LOG.warning("%s: %s; the request goes on elsewhere", member.url, failure)
                self._num_silent = self._num_silent + 1 if isinstance(failure, ReplicaSilent) else 0
            self.num_failovers += 1
            is_new = (len(self._sent), self._num_parts) != progress
            num_attempts, tried = (1, {member.number}) if is_new else (num_attempts + 1, {*tried, member.number})
            if num_attempts >= MOST_ATTEMPTS and self._refusal is None:
                raise GaveUp(f"{num_attempts} replicas failed on this request, one after the other")
        for part in self._refusal or ():
            yield part

    async def _choose(self, tried: set[int]) -> Member | None:
        """The next replica. If none takes requests, wait for one. None: replicas are busy, and have said so."""
        end = time.monotonic() + (WAIT_S if self._status is None else BEGUN_WAIT_S)
        while True:
            try:
                self.member, self._hint = self._members.choose(self._prompt, tried)
                return self.member
            except NoReplica as error:
                if self._refusal is not None and self._status is None:
                    return None
                if time.monotonic() > end:
                    self._used = self._used if self._sent else (0.0, 0.0)
                    raise NobodyThere(str(error)) from error
            tried.clear()
            await asyncio.sleep(POLL_S)

    async def _attempt(self, member: Member) -> AsyncIterator[ReplyHead | bytes]:
        """Parts from one replica. Raises ReplicaFailed if it does not get to the end."""
        is_refused, body = False, b""
        async with aclosing(self._frames(member)) as frames:  # type: ignore[type-var]
            async for kind, payload in frames:
                if kind is FrameKind.HEAD:
                    head = _head(payload)
                    begun = self._status or (OK if self._sent else None)
                    is_refused = head.status in TRY_ELSEWHERE or begun not in (None, head.status)
                    if not is_refused and self._status is None:
                        self._status = head.status
                        yield head
                elif kind is FrameKind.TOKENS:
                    self._sent += decode_tokens(json.loads(payload))
                elif kind is FrameKind.BODY and is_refused:
                    body += payload
                elif kind is FrameKind.BODY:
                    self._num_parts += 1
                    yield payload
                elif kind is FrameKind.RETURNED:
                    self._returned(member, payload)
        if is_refused:
            if head.status in TRY_ELSEWHERE:
                self._refusal = head, body
            raise ReplicaFailed(f"refused with status {head.status}")

    def _returned(self, member: Member, payload: bytes) -> None:
        reason, is_unmatched = json.loads(payload)
        if is_unmatched:
            self._members.refuse(member, f"its tokens are not the fleet's: {reason}")
        raise ReplicaFailed(reason)

    @asynccontextmanager
    async def _handed_to(self, member: Member) -> AsyncIterator[httpx2.Response]:
        """The reply of a replica that was given the request, with what the client has of its answer."""
        share = self._members.spread.enter(self._user, member.number)
        self.handed_at = self.handed_at or time.monotonic()
        try:
            request = replace(
                self._request,
                sent=tuple(self._sent),
                num_skipped=self._num_parts,
                hint=self._hint,
                names=self._prompt.names,
                share=share if self._user else 1.0,
            )
            url, headers = member.url + ANSWER_PATH, {KEY_HEADER: self._members.key}
            async with self._members.client.stream("POST", url, content=request.encode(), headers=headers) as reply:
                yield reply
        finally:
            self._members.spread.leave(self._user, member.number)

    async def _frames(self, member: Member) -> AsyncIterator[tuple[FrameKind, bytes]]:
        """Frames up to the end of the reply. Silence that is too long is a failure."""
        patience_s, reader, is_whole = FIRST_PATIENCE_S * PATIENCE_GROWTH**self._num_silent, FrameReader(), False
        try:
            async with (
                asyncio.timeout(patience_s) as limit,
                self._handed_to(member) as reply,
            ):
                if reply.status_code != 200:
                    raise ReplicaFailed(f"status {reply.status_code}")
                async for data in reply.aiter_raw():
                    limit.reschedule(None)  # a slow client's time is not the replica's
                    for kind, payload in reader.feed(data):
                        if kind is FrameKind.ALIVE:
                            patience_s = float(json.loads(payload))
                        elif kind is FrameKind.END:
                            is_whole = True  # what is left to read is the end of the HTTP message
                            self._used = _used(payload)
                        else:
                            yield kind, payload
                    limit.reschedule(asyncio.get_running_loop().time() + patience_s)
        except (httpx2.HTTPError, TimeoutError, OSError, ValueError) as error:
            self._members.lose(member, f"{type(error).__name__}: {error}")
            failure = ReplicaSilent if isinstance(error, TimeoutError) else ReplicaFailed
            raise failure(f"{type(error).__name__}: {error}") from error
        if not is_whole:
            self._members.lose(member, "it ended a reply early")
            raise ReplicaFailed("it ended a reply early")


def _used(payload: bytes) -> tuple[float, float] | None:
    """Requests and tokens; None: the replica has charged them itself."""
    if not payload:
        return None
    num_requests, num_tokens = json.loads(payload)
    return float(num_requests), float(num_tokens)


def _head(payload: bytes) -> ReplyHead:
    status, headers = json.loads(payload)
    return ReplyHead(int(status), tuple((str(name), str(value)) for name, value in headers))
