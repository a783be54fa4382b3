"""What each key has spent at upstreams today, in a file: a day by UTC, and amounts by key. It is as large as the keys
that spent something on that day are many."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from surefoot.machine.atomic_write import atomic_write

NAME = "upstream-spending"
DAY_S = 86_400
MOST_KEYS = 10_000  # that spend something in a day; further ones cannot
MOST_FILE_BYTES = 4 << 20
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hold:
    """Money that a request may cost. It counts as spent until the request is settled."""

    key: str
    day: int
    amount: int


@dataclass(frozen=True)
class Book:
    """One day."""

    day: int
    spent: Mapping[str, int] = field(default_factory=dict)  # by key

    def on(self, day: int) -> "Book":
        """A clock that goes back begins no new day."""
        return self if day <= self.day else Book(day)

    def plus(self, key: str, amount: int) -> "Book":
        return Book(self.day, {**self.spent, key: self.spent.get(key, 0) + amount})

    def to_bytes(self) -> bytes:
        text = json.dumps({"day": self.day, "spent": self.spent}).encode()
        return b"%s\n%08x\n" % (text, crc32(text))

    @classmethod
    def read(cls, data: bytes) -> "Book":
        """Raises ValueError if it is not whole."""
        text, _, checksum = data.partition(b"\n")
        if checksum != b"%08x\n" % crc32(text):
            raise ValueError("it is damaged")
        return cls(**json.loads(text))


class UpstreamSpending:
    """Safe for threads. All amounts are millionths. Raises OSError or ValueError if the file is there and cannot be
    read."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()  # of writers; readers take the book as it is
        self._book = Book(0)
        if path.exists():
            try:
                self._book = Book.read(_read(path))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}: {error}: as long as it is there, every budget is spent") from error

    def left(self, key: str, budget: int) -> int:
        return max(0, budget - self._book.on(self._today()).spent.get(key, 0))

    def hold(self, key: str, budget: int, amount: int) -> Hold | None:
        """Takes the amount, on the disk too, before it is spent. None: so much is not left."""
        with self._lock:
            book = self._book.on(self._today())
            is_full = key not in book.spent and len(book.spent) >= MOST_KEYS
            if is_full or amount > budget - book.spent.get(key, 0) or not self._write(book.plus(key, amount)):
                return None
            return Hold(key, book.day, amount)

    def settle(self, hold: Hold, amount: int) -> None:
        """The request has cost this amount. If that cannot be written, it has cost what was held."""
        with self._lock:
            book = self._book.on(self._today())
            if hold.day == book.day and amount != hold.amount:
                self._write(book.plus(hold.key, amount - hold.amount))

    def _today(self) -> int:
        return int(self._clock() // DAY_S)

    def _write(self, book: Book) -> bool:
        try:
            with atomic_write(self._path) as fresh:
                fresh.write_bytes(book.to_bytes())
        except OSError as error:
            LOG.error("what upstreams cost cannot be written: %s", error)
            return False
        self._book = book
        return True


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_FILE_BYTES)
