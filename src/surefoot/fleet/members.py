"""The replicas of a fleet as a gateway sees them: their reports, and which of them get requests."""

import asyncio
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

import httpx2

from surefoot.api.fingerprint import differing_parts
from surefoot.fleet.frames import (
    KEY_HEADER,
    MOST_STATE_BYTES,
    STATE_PATH,
    NameChanges,
    PrefixHint,
    ReplicaState,
    decode,
)
from surefoot.fleet.replica_transport import MalformedReply, read_reply
from surefoot.fleet.request_names import BYTES_PER_TOKEN, TEXT_BLOCK, PromptText
from surefoot.fleet.router import ReplicaReport, ReplicaRouter

LOG = logging.getLogger(__name__)
REPORT_S = 1.0  # between two polls of a replica's state
ANSWER_S = 5.0  # timeout of a poll
FIRST_ANSWER_S = 30.0  # timeout of the first poll, whose replies decide the fleet's identity
CONNECT_S = 2.0  # timeout of a connection to a replica
NUM_STRIKES, STRIKES_S = 3, 60.0  # a replica is refused after this many malformed messages in this time
MOST_ASSUMED = 200_000  # limit on the blocks of text that a replica is assumed to have cached


class UserSpread:
    """Which part of a user's requests is at which replica, as far as this gateway has forwarded them.

    A replica multiplies the user's weight by its part. So a user's weights over all replicas add up to the user's own,
    and a user who floods the whole fleet gets no more of it than a user of one replica.
    """

    def __init__(self) -> None:
        self._replicas: dict[str, Counter[int]] = {}  # requests by user and replica

    def __len__(self) -> int:
        """Users with requests in flight."""
        return len(self._replicas)

    def enter(self, user: str, replica: int) -> float:
        """The user has one more request at the replica. Returns the part of the user's requests that is there now."""
        counts = self._replicas.setdefault(user, Counter())
        counts[replica] += 1
        return counts[replica] / counts.total()

    def leave(self, user: str, replica: int) -> None:
        counts = self._replicas[user]
        counts[replica] -= 1
        if not counts[replica]:
            del counts[replica]
        if not counts:
            del self._replicas[user]


@dataclass
class Member:
    """A replica and its last known state."""

    number: int  # its index in the router
    url: str
    started: float | None = None  # Unix time by its own clock; None: it never keeps rates
    boot: str = ""  # differs after a restart; empty: it has not answered yet
    refusal: str = ""  # why it may not take part; empty: it may
    is_ready: bool = False
    is_listed: bool = True  # False: it was removed from the list of servers
    num_changes: int = 0  # number of the last change of cached names that it has reported
    strikes: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_STRIKES))  # monotonic times

    @property
    def is_out(self) -> bool:
        """Whether it has too many recent strikes. A restart does not clear them: a broken replica may claim one."""
        return len(self.strikes) == NUM_STRIKES and time.monotonic() - self.strikes[0] < STRIKES_S


class Members:
    """All replicas, and the router that chooses among them. A replica gets requests only if its fingerprint is the
    fleet's, so that all replicas give the same bits."""

    def __init__(self, urls: Sequence[str], key: str, client: httpx2.AsyncClient, identity: str | None = None) -> None:
        """identity: the fleet's fingerprint. None: the majority of the first reports; ties go to the first listed."""
        self.router = ReplicaRouter(TEXT_BLOCK // BYTES_PER_TOKEN)
        self.spread = UserSpread()
        self.all: list[Member] = []
        self.client = client
        self.key = key
        self.identity = identity
        self.num_strikes = 0
        self._held: dict[int, OrderedDict[int, None]] = {}
        self.set_listed(urls)

    def set_listed(self, urls: Sequence[str]) -> None:
        """Replace the list of replicas. Replicas that are not listed get no more requests."""
        listed = [url.rstrip("/") for url in urls]
        for url in dict.fromkeys(listed):
            if all(member.url != url for member in self.all):
                self.all.append(Member(self.router.join(url), url))
                self._held[self.all[-1].number] = OrderedDict()
        for member in self.all:
            member.is_listed = member.url in listed
            if not member.is_listed:
                self.lose(member, "it is no longer listed")

    @property
    def num_ready(self) -> int:
        return sum(member.is_ready for member in self.all)

    # ---- reports ----

    async def watch(self) -> None:
        """Poll every replica's state, for ever."""
        while not await self.meet():
            await asyncio.sleep(REPORT_S)
        num_watched = 0
        async with asyncio.TaskGroup() as watching:
            while True:
                for member in self.all[num_watched:]:
                    watching.create_task(self._watch(member))
                num_watched = len(self.all)
                await asyncio.sleep(REPORT_S)

    async def meet(self) -> bool:
        """Poll every replica once. False: none answered, so the fleet's identity is not known yet."""
        states = await asyncio.gather(*(self._state(member, FIRST_ANSWER_S) for member in self.all))
        replies = [(member, state) for member, state in zip(self.all, states, strict=True) if state is not None]
        if self.identity is None and replies:
            self.identity = Counter(state.identity for _, state in replies).most_common(1)[0][0]
        for member, state in replies:
            self._take(member, state)
        return self.identity is not None

    async def _watch(self, member: Member) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            if not member.is_listed:
                continue
            self.router.begin_report(member.number)
            state = await self._state(member, ANSWER_S)
            if state is not None:
                self._take(member, state)

    async def _state(self, member: Member, seconds: float) -> ReplicaState | None:
        """The replica's report of its state. None if it gives no valid reply; then it gets no more requests."""
        try:
            async with asyncio.timeout(seconds):
                url = f"{member.url}{STATE_PATH}?boot={member.boot}&since={member.num_changes}"
                async with self.client.stream("GET", url, headers={KEY_HEADER: self.key}) as reply:
                    reply.raise_for_status()
                    data = await read_reply(reply, MOST_STATE_BYTES)
            return decode(ReplicaState, data, "a state")
        except (ValueError, MalformedReply) as error:
            self.strike(member, str(error))
        except (httpx2.HTTPError, TimeoutError) as error:
            self.lose(member, f"{type(error).__name__}: {error}")
        return None

    def _take(self, member: Member, state: ReplicaState) -> None:
        if state.identity != self.identity:
            self.refuse(member, f"other {differing_parts(state.identity, self.identity or '')} than the fleet's")
            return
        if state.boot != member.boot and not member.is_out:
            self.forget(member)
            member.boot, member.started, member.refusal = state.boot, state.started, ""
        if state.names is not None:
            self._take_names(member, state.names)
        if not member.is_listed or member.refusal or state.is_draining or state.patience_s is None:
            self.lose(member, member.refusal or "it is draining, not listed, or its engine is stuck")
            return
        if not member.is_ready:
            LOG.info("%s takes part", member.url)
        member.is_ready = True
        report = ReplicaReport(
            state.backlog_tokens, state.token_ms, fetch_ms=state.fetch_ms, fetch_token_ms=state.fetch_token_ms
        )
        self.router.report(member.number, report)

    def _take_names(self, member: Member, names: NameChanges) -> None:
        if names.is_whole and member.num_changes:
            self._held[member.number].clear()
            self.router.index.remove_replica(member.number)
        member.num_changes = names.number
        self._drop(member, names.removed)
        self._assume(member, names.added)

    def _assume(self, member: Member, names: Sequence[int]) -> None:
        """Assume that the replica has these blocks cached from now on."""
        held = self._held[member.number]
        self.router.index.add(member.number, names)
        for name in reversed(names):
            held[name] = None
            held.move_to_end(name)
        self._drop(member, [*islice(held, max(0, len(held) - MOST_ASSUMED))])

    def _drop(self, member: Member, names: Sequence[int]) -> None:
        self.router.index.remove(member.number, names)
        for name in names:
            self._held[member.number].pop(name, None)

    def lose(self, member: Member, reason: str) -> None:
        """Send it no more requests until it answers a poll."""
        if member.is_ready:
            LOG.warning("%s takes no requests: %s", member.url, reason)
        member.is_ready = False
        self.router.suspend(member.number)

    def refuse(self, member: Member, reason: str) -> None:
        """Send it no more requests until it is restarted."""
        if not member.refusal:
            LOG.error("%s is refused: %s", member.url, reason)
        member.refusal, member.is_ready = reason, False
        self.router.suspend(member.number)

    def strike(self, member: Member, reason: str) -> None:
        """Note a malformed message. The replica gets no requests until it answers a poll; after NUM_STRIKES it is
        refused."""
        self.num_strikes += 1
        member.strikes.append(time.monotonic())
        if member.is_out:
            self.refuse(member, f"it sends malformed messages: {reason}")
        else:
            self.lose(member, f"it sent a malformed message: {reason}")

    def forget(self, member: Member) -> None:
        """Drop what is assumed of its cache."""
        self._held[member.number].clear()
        member.num_changes = 0
        self.router.forget(member.number)

    # ---- requests ----

    def choose(self, prompt: PromptText, excluded: Collection[int] = ()) -> tuple[Member, PrefixHint | None]:
        """The replica for a request, and the replica from which it may fetch cached blocks. Raises NoReplica.

        The chosen replica is assumed to have the prompt cached from now on.
        """
        choice = self.router.choose(prompt.names, prompt.num_tokens, excluded)
        member = self.all[choice.replica]
        self._assume(member, prompt.names)
        if choice.holder is None:
            return member, None
        return member, PrefixHint(self.all[choice.holder].url, choice.num_held)
