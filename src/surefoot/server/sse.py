"""Streams of events that a client can take up again where they broke off.

No state is kept for that: the same request gives the same tokens. An event's id says which request it belongs to (a
digest), what the server chose for it (id, time, seed) and how many tokens of each answer the client has once it has the
event. A client that comes back with the id and the same request gets what follows.
"""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

from surefoot.server.errors import ApiError, bad_request
from surefoot.server.schemas.base import LARGEST_SEED

_ID = re.compile(
    r"sf1\.([0-9a-f]{16})\.([0-9a-f]{32})\.([0-9a-f]{1,10})\.([0-9a-f]{1,16})\.(\d{1,9}e?(?:-\d{1,9}e?)*)(u?)"
)
MOST_ID_CHARACTERS = 8192


@dataclass(frozen=True)
class Mark:
    """How far a stream has come. counts: tokens of each answer; ended: answers whose end was told."""

    digest: str
    request: str  # 32 hexadecimal digits
    created: int
    seed: int
    counts: tuple[int, ...]
    ended: tuple[bool, ...]
    usage_sent: bool = False

    @classmethod
    def start(cls, digest: str, request: str, created: int, seed: int, num_answers: int) -> "Mark":
        return cls(digest, request, created, seed, (0,) * num_answers, (False,) * num_answers)

    def advanced(self, index: int, count: int, ended: bool) -> "Mark":
        """What has ended stays so."""
        counts, ends = list(self.counts), list(self.ended)
        counts[index], ends[index] = count, ended or ends[index]
        return replace(self, counts=tuple(counts), ended=tuple(ends))

    def with_usage(self) -> "Mark":
        return replace(self, usage_sent=True)

    def __str__(self) -> str:
        answers = (f"{count}{'e' * ended}" for count, ended in zip(self.counts, self.ended, strict=True))
        places = f"{'-'.join(answers)}{'u' * self.usage_sent}"
        return f"sf1.{self.digest}.{self.request}.{self.created:x}.{self.seed:x}.{places}"

    @classmethod
    def parse(cls, text: str, digest: str, num_answers: int) -> "Mark":
        """Raises ApiError if it is not a mark of this request."""
        found = _ID.fullmatch(text) if len(text) <= MOST_ID_CHARACTERS else None
        if found is None:
            raise bad_request("Last-Event-ID is not one of this server's: leave it out to begin anew", "Last-Event-ID")
        answers = found[5].split("-")
        seed = int(found[4], 16)
        if found[1] != digest or len(answers) != num_answers or seed > LARGEST_SEED:
            raise bad_request(
                "Last-Event-ID belongs to another request or another model: "
                "repeat the very same request, or leave the header out to begin anew",
                "Last-Event-ID",
            )
        counts = tuple(int(answer.removesuffix("e")) for answer in answers)
        ended = tuple(answer.endswith("e") for answer in answers)
        return cls(found[1], found[2], int(found[3], 16), seed, counts, ended, bool(found[6]))


def digest_of(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:16]


class Template:
    """Events that differ in little: all but their choices and usage is written once."""

    def __init__(self, head: dict[str, Any], usage: bool) -> None:
        """usage: every event has a field for it, empty but in the last."""
        self._head = json.dumps(head, separators=(",", ":"))[:-1]
        self._tail = ',"usage":null}' if usage else "}"

    def event(self, choice: dict[str, Any], mark: Mark) -> bytes:
        text = json.dumps(choice, separators=(",", ":"))
        return f'id: {mark}\ndata: {self._head},"choices":[{text}]{self._tail}\n\n'.encode()

    def last(self, usage: dict[str, Any], mark: Mark) -> bytes:
        text = json.dumps(usage, separators=(",", ":"))
        return f'id: {mark}\ndata: {self._head},"choices":[],"usage":{text}}}\n\n'.encode()


def event(data: Any, name: str | None = None) -> bytes:
    lines = [] if name is None else [f"event: {name}"]
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return ("\n".join([*lines, f"data: {text}"]) + "\n\n").encode()


async def openai_stream(chunks: AsyncIterator[bytes], refuse: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
    """The chunks and the end that OpenAI's clients wait for; an error on the way ends them, and is counted."""
    try:
        async for one in chunks:
            yield one
    except ApiError as error:
        refuse(error.status)
        yield event(error.as_openai())
        return
    yield event("[DONE]")
