"""A request that a fleet's gateway hands to this server, and that another server may have begun.

The gateway chooses what a server would choose by itself: id, time and seed. This server tells it every token before the
bytes that the token makes. So another server can go on: it makes the same reply from its beginning on, and leaves out
what the client has.
"""

import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from surefoot.api.continuation import SentToken, sent_tokens
from surefoot.api.outputs import Piece

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


@dataclass(frozen=True)
class PrefixHint:
    """A server of the fleet that is said to hold the first tokens of a request's prompt."""

    url: str
    num_tokens: int  # estimated from the text


class Handover:
    """A handed-over request on this server."""

    def __init__(
        self,
        identity: ReplyIdentity,
        sent: Sequence[SentToken],
        tell: Callable[[list[SentToken]], None],
        *,
        is_patient: bool = False,
        hint: PrefixHint | None = None,
        names: Sequence[int] = (),
        share: float = 1.0,
        is_charged: bool = False,
    ) -> None:
        """sent: tokens that the gateway has. tell: sends it more. is_patient: no client waits for the answer. hint:
        where more of its prompt is. names: the gateway's, of the prompt's blocks of text. share: of the user's requests
        that are at this server. is_charged: the gateway has charged it to the caller's rates."""
        self.identity = identity
        self.sent = sent
        self.is_patient = is_patient
        self.hint = hint
        self.names = names
        self.share = share
        self.is_charged = is_charged
        self.num_requests = self.num_tokens = 0.0  # that this server would have charged
        self._num_known = len(sent)
        self._tell = tell
        self.return_reason = ""  # why another server must go on; empty: no need
        self.is_unmatched = False  # a token that was sampled again was another one

    def restart(self) -> None:
        """The request cannot go on from tokens: it is computed anew, and no token is told."""
        self.sent = ()
        self._tell = lambda tokens: None

    def note(self, piece: Piece) -> None:
        """Tell the gateway the tokens that it does not have."""
        tokens = sent_tokens(piece)
        num_known = min(self._num_known, len(tokens))
        self._num_known -= num_known
        if tokens[num_known:]:
            self._tell(tokens[num_known:])

    def count_requests(self, number: float) -> None:
        self.num_requests += number

    def count_tokens(self, number: float) -> None:
        self.num_tokens += number

    def give_back(self, reason: str, is_unmatched: bool = False) -> None:
        """Let another server go on. What this server replies from now on is dropped."""
        self.return_reason, self.is_unmatched = reason, is_unmatched
