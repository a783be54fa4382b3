"""A line for each request: who, when, how much, how it ended. Never what was said."""

import json
import time
from pathlib import Path
from typing import Any


class AuditLog:
    """JSON lines, each written at once."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1) if path is not None else None

    def write(self, **facts: Any) -> None:
        if self._file is not None:
            self._file.write(json.dumps({"time": round(time.time(), 3), **facts}) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
