"""What matrices lose, kept in a file part by part: measuring that was stopped goes on, and another budget for the same
model needs none. It is small, made anew whenever it does not fit, and safe to delete, as whoever changes how losses are
measured must."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from surefoot.compress.allocate import Option
from surefoot.machine.atomic_write import written_whole

Table = dict[str, list[Option]]
Keep = Callable[[str, Callable[[], Table]], Table]  # a part's table, from the file or made


def keep_nothing(_: str, make: Callable[[], Table]) -> Table:
    return make()


@dataclass(frozen=True)
class Kept:
    """of: what is measured, and how. Parts of anything else are not read. A part that others are asked for in the
    making of takes their place: what was known before it was made is written with it, and no more."""

    place: Path
    of: str

    def __call__(self, part: str, make: Callable[[], Table]) -> Table:
        known = self._read()
        if part not in known:
            known[part] = make()
            with suppress(OSError):  # a full or read-only disk costs the next run time, not this one its losses
                self._write(known)
        return known[part]

    def _read(self) -> dict[str, Table]:
        try:
            found = json.loads(self.place.read_text(encoding="utf-8"))
            if found["of"] != self.of:
                return {}
            return {
                part: {name: [_option(*one) for one in some] for name, some in table.items()}
                for part, table in found["parts"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write(self, parts: dict[str, Table]) -> None:
        listed = {
            part: {name: [astuple(one) for one in some] for name, some in table.items()}
            for part, table in parts.items()
        }
        with written_whole(self.place) as beside:
            beside.write_text(json.dumps({"of": self.of, "parts": listed}), encoding="utf-8")


def _option(fmt: object, nbytes: object, loss: object) -> Option:
    if isinstance(fmt, str) and isinstance(nbytes, int) and isinstance(loss, float) and 0 <= loss < math.inf:
        return Option(fmt, nbytes, loss)
    raise ValueError("no option")
