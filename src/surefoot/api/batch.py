"""Files of requests in OpenAI's batch format: a line in, a line out, resumable wherever it was killed.

The files alone: who answers the lines is another's business. The output file is the only state. Each line is written
whole, as its request ends; the torn end of a killed run is cut off, and what has a line is not done again. A line's
`id` comes from the input line's bytes, so a file that belongs to other input is refused; without a seed in the body, so
does the seed: a batch gives the same bits whenever it is run.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any


@dataclass(frozen=True)
class Line:
    """One line of the input. number: from 1. digest: of its bytes."""

    number: int
    custom_id: str
    digest: str
    content: Any

    @property
    def id(self) -> str:
        return f"batch_req_{self.digest[:32]}"

    @property
    def seed(self) -> int:
        return int(self.digest[-16:], 16) >> 1


class AnswerFile:
    """A file of answers, open at its end and locked. done: the custom_ids that have a whole line.

    A last line that was cut off is removed; a file that holds anything but answers to these lines is refused.
    """

    def __init__(self, path: Path, ids: Mapping[str, str]) -> None:
        """ids: the lines' ids by custom_id."""
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.done = finished_ids(self._file, path, ids)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"{path} is being written by another run: wait for its end") from None
        except BaseException:
            self._file.close()
            raise

    def write(self, line: Line, status: int, body: dict[str, Any]) -> None:
        """Whole, and at once."""
        response = {"status_code": status, "request_id": line.digest[:32], "body": body}
        reply = {"id": line.id, "custom_id": line.custom_id, "response": response, "error": None}
        self._file.write(json.dumps(reply, ensure_ascii=False).encode(errors="surrogatepass") + b"\n")
        self._file.flush()
        self.done.add(line.custom_id)

    def __enter__(self) -> "AnswerFile":
        return self

    def __exit__(self, *error: object) -> None:
        os.fsync(self._file.fileno())
        self._file.close()


def named_model(source: Path) -> str:
    """The model that the lines' bodies name."""
    bodies = (line.content.get("body") for line in read_lines(source))
    names = sorted({str(body.get("model")) for body in bodies if isinstance(body, dict)})
    if len(names) != 1 or names == ["None"]:
        raise ValueError(f"the lines name {', '.join(names) or 'no model'}: say with --model which one to run")
    return names[0]


def read_lines(source: Path) -> Iterator[Line]:
    """Raises ValueError for a line that is no request at all, and for a custom_id that comes twice."""
    seen: set[str] = set()
    with source.open("rb") as lines:
        for number, raw in enumerate(lines, 1):
            text = raw.strip()
            if not text:
                continue
            try:
                content = json.loads(text)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from None
            custom_id = content.get("custom_id") if isinstance(content, dict) else None
            if not isinstance(custom_id, str) or not custom_id:
                raise ValueError(f"line {number} has no custom_id: give each line its own")
            if custom_id in seen:
                raise ValueError(f"line {number} has the custom_id {custom_id!r} of a line before: give each its own")
            seen.add(custom_id)
            yield Line(number, custom_id, hashlib.sha256(text).hexdigest(), content)


def finished_ids(out: IO[bytes], target: Path, ids: Mapping[str, str]) -> set[str]:
    """What has a whole line already. A last line that was cut off is removed; lines of other input are refused."""
    done: set[str] = set()
    out.seek(0)
    end = 0
    for raw in out:
        if not raw.endswith(b"\n"):
            break
        try:
            reply = json.loads(raw)
            custom_id, number = reply["custom_id"], reply["id"]
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{target} holds something else than a batch's output: give another file") from None
        if ids.get(custom_id) != number:
            raise ValueError(f"{target} belongs to another input (see {custom_id!r}): give another file, or remove it")
        done.add(custom_id)
        end += len(raw)
    out.truncate(end)
    out.seek(0, os.SEEK_END)
    return done
