"""How far a stream has come, written as the id of its events, so that a client can resume where it broke off.

The server keeps no state for that: the same request gives the same tokens. An event's id holds a digest of the request,
what the server chose for it (id, time, seed), and the number of tokens of each answer that the client has once it has
the event. A client that repeats the request with this id in Last-Event-ID gets the events that follow.
"""

import hashlib
import re
from dataclasses import dataclass, replace

from surefoot.server.errors import bad_request
from surefoot.server.schemas.base import LARGEST_SEED

_ID = re.compile(
    r"sf1\.([0-9a-f]{16})\.([0-9a-f]{32})\.([0-9a-f]{1,10})\.([0-9a-f]{1,16})\.(\d{1,9}e?(?:-\d{1,9}e?)*)(u?)"
)
MOST_ID_CHARACTERS = 8192


@dataclass(frozen=True)
class StreamPosition:
    """How far a stream has come."""

    digest: str  # of the request and of what its answer depends on
    request: str  # the request's id: 32 hexadecimal digits
    created: int  # Unix time
    seed: int
    counts: tuple[int, ...]  # tokens sent of each answer
    ended: tuple[bool, ...]  # answers whose end was sent
    usage_sent: bool = False

    @classmethod
    def start(cls, digest: str, request: str, created: int, seed: int, num_answers: int) -> "StreamPosition":
        return cls(digest, request, created, seed, (0,) * num_answers, (False,) * num_answers)

    def advanced(self, index: int, count: int, ended: bool) -> "StreamPosition":
        """The position after more of one answer. An answer that has ended stays ended."""
        counts, ends = [*self.counts], [*self.ended]
        counts[index], ends[index] = count, ended or ends[index]
        return StreamPosition(self.digest, self.request, self.created, self.seed, (*counts,), (*ends,), self.usage_sent)

    def with_usage(self) -> "StreamPosition":
        return replace(self, usage_sent=True)

    def __str__(self) -> str:
        answers = (f"{count}{'e' * ended}" for count, ended in zip(self.counts, self.ended, strict=True))
        places = f"{'-'.join(answers)}{'u' * self.usage_sent}"
        return f"sf1.{self.digest}.{self.request}.{self.created:x}.{self.seed:x}.{places}"

    @classmethod
    def parse(cls, text: str, digest: str, num_answers: int) -> "StreamPosition":
        """The position that an event's id holds. Raises ApiError if it belongs to another request."""
        match = _ID.fullmatch(text) if len(text) <= MOST_ID_CHARACTERS else None
        if match is None:
            raise bad_request("Last-Event-ID is not one of this server's: leave it out to begin anew", "Last-Event-ID")
        answers = match[5].split("-")
        seed = int(match[4], 16)
        if match[1] != digest or len(answers) != num_answers or seed > LARGEST_SEED:
            raise bad_request(
                "Last-Event-ID belongs to another request or another model: "
                "repeat the very same request, or leave the header out to begin anew",
                "Last-Event-ID",
            )
        counts = tuple(int(answer.removesuffix("e")) for answer in answers)
        ended = tuple(answer.endswith("e") for answer in answers)
        return cls(match[1], match[2], int(match[3], 16), seed, counts, ended, bool(match[6]))


def digest_of(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:16]
