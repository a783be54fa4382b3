"""A client's request in a fleet: if its replica dies, hangs or drains, it goes on at another at the very next token.

The gateway keeps the tokens that were told and counts the parts of the reply that it passed on. An answer is a function
of model, request and seed, so this is all that another replica needs.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

import httpx2

from surefoot.api.answers import SentToken
from surefoot.fleet.frames import (
    ANSWER_PATH,
    KEY_HEADER,
    ForwardedRequest,
    FrameKind,
    FrameReader,
    Headers,
    PrefixHint,
    decode_patience,
    decode_reply_head,
    decode_returned,
    decode_tokens,
    decode_used,
)
from surefoot.fleet.members import Member, Members
from surefoot.fleet.replica_transport import MalformedReply
from surefoot.fleet.request_names import PromptText
from surefoot.fleet.router import NoReplica
from surefoot.server.access.line_log import HEADER as ID_HEADER
from surefoot.server.access.line_log import current_id
from surefoot.server.bodies import HOP_BY_HOP

LOG = logging.getLogger(__name__)
FIRST_PATIENCE_S = 5.0  # until a replica has said how long its silence may last
PATIENCE_GROWTH = 3.0  # after each silent replica: where several are silent, the machines may be slow, not hung
MOST_ATTEMPTS = 3  # in a row without a new token or part: a request that kills its replicas must not kill them all
OK, TOO_LATE = 200, 504
TRY_ELSEWHERE = (429, 503)
WAIT_S, POLL_S = 15.0, 0.05  # for a replica to come back
BEGUN_WAIT_S = 120.0  # the same, of a reply that has begun: its client would rather wait than begin anew
STALL_S = 660.0  # without a token or a part, after which a request is given up: servers end theirs after 600 s
MOST_TOKENS = 1 << 20  # of a request's answers together
MOST_REFUSAL_BYTES = 1 << 20
BODILESS = (204, 304)  # statuses whose replies have no body


@dataclass(frozen=True)
class ReplyHead:
    status: int
    headers: Headers

    @classmethod
    def decode(cls, payload: bytes) -> "ReplyHead":
        """Raises ValueError."""
        status, headers = decode_reply_head(payload)
        return cls(status, tuple(header for header in headers if header[0].lower().encode() not in HOP_BY_HOP))

    @property
    def length(self) -> int | None:
        """Bytes of the body; None: it is not told. Raises ValueError."""
        lengths = [int(value) for name, value in self.headers if name.lower() == "content-length"]
        if len(lengths) > 1 or min(lengths, default=0) < 0 or (self.status in BODILESS and any(lengths)):
            raise ValueError("a length that no reply can have")
        return 0 if self.status in BODILESS else lengths[0] if lengths else None


class ReplicaFailed(RuntimeError):
    """The replica cannot go on with the request."""


class BadReply(ReplicaFailed):
    """What the replica sent is no reply: it is broken, or no server of ours."""


class ReplicaSilent(ReplicaFailed):
    """It may be dead, hung or only slow."""


class GaveUp(RuntimeError):
    """No replica could answer the request."""


class NoReplicaAvailable(GaveUp):
    """The request is not at fault: no replica takes requests."""


@dataclass
class _ReplicaReply:
    """One replica's reply, as far as it has come."""

    goes_on: bool  # with tokens of another
    head: ReplyHead | None = None
    is_refused: bool = False  # its status is not the one that the client gets
    refusal: bytearray = field(default_factory=bytearray)  # the body of a reply that is refused


class FleetAnswer:
    """The reply to one request, whichever replicas it comes from."""

    def __init__(
        self,
        members: Members,
        request: ForwardedRequest,
        prompt: PromptText,
        user: str = "",
        stall_s: float = STALL_S,
    ) -> None:
        """user: the client's key. Empty: clients have none. stall_s: without a token or a part, after which it is given
        up, whatever replicas say of being alive."""
        self._members = members
        self._user = user
        self._request = request
        self._prompt = prompt
        self._sent: list[SentToken] = []
        self._num_parts = 0
        self._status: int | None = None  # of the head that was passed on
        self._num_left: int | None = None  # bytes of the body that are still to come; None: it was not told
        self._stall_s = stall_s
        self._progress_at = time.monotonic()
        self._refusal: tuple[ReplyHead, bytes] | None = None  # of a replica that is busy or drains
        self._num_silent = 0  # replicas in a row
        self._hint: PrefixHint | None = None  # where the replica may fetch more of the prompt
        self.num_failovers = 0
        self.member: Member | None = None  # that computes the answer now
        self.forwarded_at: float | None = None  # when a replica was first asked, on the monotonic clock
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
                    raise NoReplicaAvailable(str(error)) from error
            tried.clear()
            await asyncio.sleep(POLL_S)

    async def _attempt(self, member: Member) -> AsyncIterator[ReplyHead | bytes]:
        """Parts from one replica. Raises ReplicaFailed if it does not get to the end."""
        reply = _ReplicaReply(goes_on=bool(self._sent))
        async with aclosing(self._frames(member)) as frames:  # type: ignore[type-var]
            async for kind, payload in frames:
                if kind is FrameKind.RETURNED:
                    self._returned(member, payload)
                try:
                    parts = self._take(reply, kind, payload)
                except ValueError as error:
                    raise self._bad_reply(member, error) from error
                for part in parts:
                    yield part
        if reply.head is not None and reply.is_refused:
            if reply.head.status in TRY_ELSEWHERE:
                self._refusal = reply.head, bytes(reply.refusal)
            raise ReplicaFailed(f"refused with status {reply.head.status}")

    def _take(self, reply: "_ReplicaReply", kind: FrameKind, payload: bytes) -> tuple[ReplyHead | bytes, ...]:
        """What the frame adds to the client's reply. Raises ValueError if it cannot come here."""
        if kind is FrameKind.TOKENS:
            self._take_tokens(payload)
            return ()
        if kind is FrameKind.HEAD:
            return self._take_head(reply, payload)
        if reply.head is None:
            raise ValueError("a reply without a head")
        if reply.is_refused:
            self._take_refusal(reply, kind, payload)
            return ()
        parts = self._take_part(kind, payload)
        return parts if self._status is not None else (self._begin(reply.head), *parts)

    def _take_head(self, reply: "_ReplicaReply", payload: bytes) -> tuple[ReplyHead, ...]:
        """A head with a length is passed on with the body: it depends on times, so that replicas differ in it."""
        if reply.head is not None:
            raise ValueError("a second head")
        reply.head = head = ReplyHead.decode(payload)
        begun = self._status or (OK if reply.goes_on and head.status != TOO_LATE else None)
        reply.is_refused = head.status in TRY_ELSEWHERE or begun not in (None, head.status)
        if self._status is None:
            self._num_left = None if self._request.method == "HEAD" else head.length
        has_to_wait = head.length is not None or reply.is_refused or self._status is not None
        return () if has_to_wait else (self._begin(head),)

    def _take_refusal(self, reply: "_ReplicaReply", kind: FrameKind, payload: bytes) -> None:
        if kind is FrameKind.END:
            self._used = decode_used(payload)
            return
        reply.refusal += payload
        if len(reply.refusal) > MOST_REFUSAL_BYTES:
            raise ValueError("a refusal of too many bytes")

    def _take_tokens(self, payload: bytes) -> None:
        tokens = decode_tokens(payload)
        if len(self._sent) + len(tokens) > MOST_TOKENS:
            raise ValueError("more tokens than an answer can have")
        if tokens:
            self._sent += tokens
            self._progress_at = time.monotonic()

    def _begin(self, head: ReplyHead) -> ReplyHead:
        """The head that is passed on."""
        self._status = head.status
        return head

    def _take_part(self, kind: FrameKind, payload: bytes) -> tuple[bytes, ...]:
        """A part of the body, or its end."""
        if kind is FrameKind.END:
            if self._num_left:
                raise ValueError("a reply that is shorter than it said")
            self._used = decode_used(payload)
            return ()
        if kind is FrameKind.BEAT and self._num_left is not None:
            raise ValueError("a sign of life in a reply that is no stream")
        if not payload or (self._num_left is not None and len(payload) > self._num_left):
            raise ValueError("a part that is empty, or longer than the reply")
        if self._num_left is not None:
            self._num_left -= len(payload)
        self._num_parts += kind is FrameKind.BODY
        self._progress_at = time.monotonic()
        return (payload,)

    def _returned(self, member: Member, payload: bytes) -> None:
        try:
            reason, is_unmatched = decode_returned(payload)
        except ValueError as error:
            raise self._bad_reply(member, error) from error
        if is_unmatched:
            self._members.refuse(member, f"its tokens are not the fleet's: {reason}")
        raise ReplicaFailed(reason)

    def _bad_reply(self, member: Member, error: Exception) -> BadReply:
        self._members.strike(member, str(error))
        return BadReply(str(error))

    @asynccontextmanager
    async def _forwarded_to(self, member: Member) -> AsyncIterator[httpx2.Response]:
        """The reply of a replica that was given the request, with what the client has of its answer."""
        share = self._members.spread.enter(self._user, member.number)
        self.forwarded_at = self.forwarded_at or time.monotonic()
        try:
            request = replace(
                self._request,
                sent=tuple(self._sent),
                num_skipped=self._num_parts,
                hint=self._hint,
                names=self._prompt.names,
                share=share if self._user else 1.0,
            )
            url = member.url + ANSWER_PATH
            headers = {KEY_HEADER: self._members.key, **({ID_HEADER: current_id()} if current_id() else {})}
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
                self._forwarded_to(member) as reply,
            ):
                if reply.status_code != 200:
                    raise ReplicaFailed(f"status {reply.status_code}")
                async for data in reply.aiter_raw():
                    limit.reschedule(None)  # a slow client's time is not the replica's
                    for kind, payload in reader.feed(data):
                        if is_whole:
                            raise ValueError("a frame after the last one")
                        if kind is FrameKind.ALIVE:
                            patience_s = decode_patience(payload)
                        else:
                            is_whole = kind is FrameKind.END  # what is left to read is the end of the HTTP message
                            yield kind, payload
                    left_s = self._progress_at + self._stall_s - time.monotonic()
                    limit.reschedule(asyncio.get_running_loop().time() + min(patience_s, left_s))
        except (ValueError, MalformedReply) as error:
            raise self._bad_reply(member, error) from error
        except (httpx2.HTTPError, TimeoutError, OSError) as error:
            if time.monotonic() > self._progress_at + self._stall_s:
                raise GaveUp("it makes no progress") from error
            self._members.lose(member, f"{type(error).__name__}: {error}")
            failure = ReplicaSilent if isinstance(error, TimeoutError) else ReplicaFailed
            raise failure(f"{type(error).__name__}: {error}") from error
        if not is_whole:
            self._members.lose(member, "it ended a reply early")
            raise ReplicaFailed("it ended a reply early")
