"""A gateway's exchanges with the keeper of its clients' rates, beside its requests."""

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import suppress

import httpx2

from surefoot.fleet.frames import KEY_HEADER, decode
from surefoot.fleet.leases import LEASES_PATH, MOST_REPLY_BYTES, KeeperStatus, LeaseReply, Leases
from surefoot.fleet.members import Member, Members
from surefoot.fleet.replica_transport import MalformedReply, read_reply

LOG = logging.getLogger(__name__)
EXCHANGE_S = 1.0  # between two exchanges, if no lease is low
LEAST_S = 0.25  # the same, if one is, and before the first
FIRST_S = 2.0  # for which requests wait at the gateway's start, while no limits are known
ANSWER_S = 2.0  # within which the keeper must answer
AVOIDED_S = 10.0  # for which a server that did not is not asked again, unless no other is left


class LeaseExchange:
    """Exchanges for ever. The keeper is the server that runs longest, so that gateways agree without talking."""

    def __init__(self, members: Members) -> None:
        self.keeper: Member | None = None  # that answered last
        self.status: KeeperStatus | None = None  # of the keeper, as it told last
        self.num_exchanges = 0
        self.num_failures = 0
        self._members = members
        self._is_due, self._has_begun = asyncio.Event(), asyncio.Event()
        self._failed: dict[int, float] = {}  # members that did not answer lately, and when
        self.leases = Leases(self._is_due.set)

    async def run(self) -> None:
        while True:
            if self._has_begun.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(EXCHANGE_S):  # wait_for may lose a cancellation
                        await self._is_due.wait()
            self._is_due.clear()
            await self.exchange()
            await asyncio.sleep(LEAST_S)

    async def begun(self) -> None:
        """Wait until the limits are known, or it is known that nobody keeps them. Only at the gateway's start."""
        if not self._has_begun.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_S):
                    await self._has_begun.wait()

    async def exchange(self) -> None:
        """Ask the keeper once. If it does not answer, another server is asked the next times."""
        now = time.monotonic()
        self._failed = {number: since for number, since in self._failed.items() if now - since < AVOIDED_S}
        keeper = choose_keeper(self._members, self._failed) or choose_keeper(self._members)
        if keeper is None:
            if self._members.num_ready:  # servers of an older version
                self._has_begun.set()
            return
        try:
            await self._ask(keeper)
        except (httpx2.HTTPError, TimeoutError, ValueError) as error:
            if isinstance(error, ValueError | MalformedReply):
                self._members.strike(keeper, str(error))
            self.num_failures += 1
            self._failed[keeper.number] = now
            LOG.warning("%s does not keep the clients' rates: %s: %s", keeper.url, type(error).__name__, error)
            return
        finally:
            self._has_begun.set()
        self.num_exchanges += 1
        if self.keeper is not keeper:
            LOG.info("%s keeps the clients' rates", keeper.url)
        self.keeper = keeper

    async def _ask(self, keeper: Member) -> None:
        question = self.leases.ask()
        url, headers = keeper.url + LEASES_PATH, {KEY_HEADER: self._members.key}
        async with asyncio.timeout(ANSWER_S):
            content = question.model_dump_json()
            async with self._members.client.stream("POST", url, content=content, headers=headers) as reply:
                reply.raise_for_status()
                data = await read_reply(reply, MOST_REPLY_BYTES)
        answer = decode(LeaseReply, data, "a reply about leases")
        self.status = answer.status
        self.leases.take_reply(question, answer)


def choose_keeper(members: Members, excluded: Collection[int] = ()) -> Member | None:
    """The server that runs longest, of those that are ready. None: there is none."""
    candidates = (member for member in members.all if member.is_ready and member.number not in excluded)
    started = ((member.started, member.boot, member) for member in candidates if member.started is not None)
    return min(started, key=lambda entry: entry[:2], default=(0.0, "", None))[2]
