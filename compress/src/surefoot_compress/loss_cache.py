"""A file of measured losses, kept part by part. An interrupted measurement resumes from it, and another budget for the
same model measures nothing.

The file is small, is rewritten whenever it does not match, and is safe to delete. A change to how losses are measured
must change what `LossCache.of` holds."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from surefoot.machine.atomic_write import atomic_write
from surefoot_compress.allocate import FormatOption

LossTable = dict[str, list[FormatOption]]  # by name of the matrix
CachePart = Callable[[str, Callable[[], LossTable]], LossTable]  # a part's table: cached, or made by the callable


def no_cache(_: str, make: Callable[[], LossTable]) -> LossTable:
    return make()


@dataclass(frozen=True)
class LossCache:
    """Measured losses in a file.

    A part may ask for other parts while it is made (`all` asks for each layer). It then replaces them: the file gets
    the parts known before it was made, and the part itself."""

    path: Path  # of the file
    of: str  # fingerprint of what is measured, and how; parts with another fingerprint are ignored

    def __call__(self, part: str, make: Callable[[], LossTable]) -> LossTable:
        parts = self._read()
        if part not in parts:
            parts[part] = make()
            with suppress(OSError):  # a full or read-only disk costs the next run time; this run has its losses
                self._write(parts)
        return parts[part]

    def _read(self) -> dict[str, LossTable]:
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["of"] != self.of:
                return {}
            return {
                part: {name: [_option(*fields) for fields in options] for name, options in table.items()}
                for part, table in stored["parts"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write(self, parts: dict[str, LossTable]) -> None:
        stored = {
            part: {name: [astuple(option) for option in options] for name, options in table.items()}
            for part, table in parts.items()
        }
        with atomic_write(self.path) as beside:
            beside.write_text(json.dumps({"of": self.of, "parts": stored}), encoding="utf-8")


def _option(fmt: object, nbytes: object, loss: object) -> FormatOption:
    if isinstance(fmt, str) and isinstance(nbytes, int) and isinstance(loss, float) and 0 <= loss < math.inf:
        return FormatOption(fmt, nbytes, loss)
    raise ValueError("not a format option")
