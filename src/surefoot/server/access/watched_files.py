"""Files that an operator may change while the server runs: keys, a certificate."""

import asyncio
from collections.abc import Callable
from pathlib import Path

Stamp = tuple[int, int, int]


class WatchedFiles:
    """What files looked like when they were last read, to notice that they have changed."""

    def __init__(self, *files: Path | None) -> None:
        self._files = [file for file in files if file is not None]
        self.note()

    def note(self) -> None:
        """To be called before the files are read."""
        self._stamps = [_stamp(file) for file in self._files]

    @property
    def have_changed(self) -> bool:
        return self._stamps != [_stamp(file) for file in self._files]

    async def watch(self, every_s: float, read: Callable[[], object]) -> None:
        """Read the files again whenever they have changed, for ever. read: notes them."""
        while True:
            await asyncio.sleep(every_s)
            if self.have_changed:
                read()


def _stamp(file: Path) -> Stamp:
    """Zeros if there is no such file."""
    try:
        facts = file.stat()
    except OSError:
        return (0, 0, 0)
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
