"""A request that came through something in front of this server, which may take it elsewhere if this server fails.

The server asks it what is declared here, and knows no more of it. A server that nothing stands in front of has none.
"""

import secrets
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from surefoot.api.continuation import SentToken
from surefoot.api.outputs import Piece
from surefoot.core import Request
from surefoot.server.access.keys import Caller

SEED_BITS = 53  # of a drawn seed: JavaScript reads no longer integer exactly


@dataclass(frozen=True)
class ReplyIdentity:
    """What an answer has that is neither in its request nor computed."""

    request: str  # the answer's id: 32 hexadecimal digits
    created: int  # Unix time, which the chat template may print
    seed: int  # for a request without one

    @classmethod
    def draw(cls, request: str = "", created: int | None = None) -> "ReplyIdentity":
        """request: the answer's id, if it is known. created: Unix time; None: now."""
        now = int(time.time()) if created is None else created
        return cls(request or uuid.uuid4().hex, now, secrets.randbits(SEED_BITS))


class Forwarded(Protocol):
    """One such request, from the gate to its end."""

    @property
    def identity(self) -> ReplyIdentity: ...

    @property
    def is_patient(self) -> bool:
        """Whether no client waits for the answer."""

    def caller(self, caller: Caller) -> Caller:
        """The caller whose key it has, with the weight and the rates that hold for it."""

    def begin(self, requests: Sequence[Request]) -> Sequence[SentToken]:
        """The engine is about to get these. Returns the tokens that were sent already: the answer goes on there."""

    def note(self, piece: Piece) -> None:
        """A piece of the answer, before its bytes are sent."""

    def give_back(self, reason: str, is_unmatched: bool) -> None:
        """This server cannot go on. is_unmatched: a token that was sampled again was another one."""

    def end(self, num_generated: int) -> None:
        """It has ended, after so many tokens."""
