"""What a server with upstreams adds to a request that stays: `python -m experiments.upstream_checks`."""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from starlette.datastructures import Headers

from surefoot.front.patterns import PrivatePatterns
from surefoot.front.private_marks import NAME, PrivateMarks
from surefoot.front.sensitivity import SENSITIVITY_HEADER
from surefoot.front.upstreams import Upstreams
from surefoot.server.access.line_log import LineLog

PATH = "/v1/chat/completions"
PATTERNS = (
    "(?i)confidential",
    r"\bDE\d{20}\b",
    r"\b\d{4}-\d{4}-\d{4}-\d{4}\b",
    "(?i)project (falcon|heron)",
    r"PIN \d+",
)
WORDS = "The quick brown fox jumps over the lazy dog and the next one too. "


def conversations(num_messages: int, num_bytes: int) -> Iterator[dict[str, object]]:
    """Each goes on by a message of its own."""
    text = (WORDS * (num_bytes // len(WORDS) + 1))[: num_bytes // num_messages]
    begun = [{"role": "user", "content": f"{number} {text}"} for number in range(num_messages - 1)]
    for number in range(200):
        yield {"model": "auto", "messages": [*begun, {"role": "user", "content": f"new {number} {text}"}]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, closing(PrivateMarks(Path(folder) / NAME)) as marks:
        patterns, audit = PrivatePatterns(PATTERNS), LineLog("audit log", None)
        upstreams = Upstreams((), {}, patterns, marks, None, audit, 60.0, count=lambda *facts: None)
        for num_messages, num_bytes in ((5, 2_000), (20, 20_000), (100, 100_000)):
            for declared in ("public", "private"):
                headers, times = Headers({SENSITIVITY_HEADER: declared}), []
                for given in conversations(num_messages, num_bytes):
                    length = len(json.dumps(given))
                    began = time.perf_counter()
                    upstreams.examine(PATH, headers, given, length)
                    times.append(time.perf_counter() - began)
                median, most = sorted(times)[len(times) // 2], sorted(times)[-2]
                print(
                    f"{num_messages} messages, {num_bytes} bytes, {declared}: {1e3 * median:.3f} ms ({1e3 * most:.3f})"
                )


if __name__ == "__main__":
    main()
