"""docs/assets/terminal.svg: a terminal recorded from a real run, as an SVG that plays by itself.

python docs/make/terminal.py MODEL.gguf [--tokens 40] [--out FILE.svg]

The commands run in a pseudo-terminal; what it shows is kept with its times. Waits of more than a second are
shortened. A viewer without animation shows the last screen.
"""

import argparse
import os
import pty
import select
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from html import escape
from pathlib import Path
from termios import TIOCSWINSZ

import pyte

COLUMNS, ROWS = 110, 13
FRAME_S = 0.12  # frames closer than this are one
LONGEST_WAIT_S = 1.0
LAST_S = 6.0  # for which the last screen stands before the recording begins again
CELL, LINE, MARGIN, TOP = 8.4, 19, 16, 40
QUESTION = "Why is the sky blue?"
# In any style sheet that a page may have: dark, since terminals are.
STYLE = (
    "text{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre;fill:#d7dae0}"
    ".p{fill:#5fd7af}.f{visibility:hidden}.l{visibility:visible}"
)


@dataclass(frozen=True)
class Frame:
    at_s: float  # since the beginning
    lines: tuple[str, ...]  # of the screen


def commands(model: str, tokens: int) -> list[str]:
    ask = f'surefoot generate {model} "{QUESTION}" --chat -n {tokens}'
    return [ask, f"{ask} --no-stats | sha256sum", f"{ask} --no-stats --variant portable | sha256sum"]


def record(lines: Sequence[str], folder: Path) -> list[Frame]:
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    frames: list[Frame] = []
    clock = 0.0
    for line in lines:
        for typed in (f"$ {line[:end]}" for end in range(0, len(line) + 1, 6)):
            clock += 0.05
            frames.append(Frame(clock, (*_above(screen), typed)))
        stream.feed(f"$ {line}\r\n".encode())
        clock += 0.3
        for seconds, data in _run(line, folder):
            clock += min(seconds, LONGEST_WAIT_S)
            stream.feed(data)
            frames.append(Frame(clock, _shown(screen)))
        clock += 0.6
    stream.feed(b"$ ")
    return [*frames, Frame(clock, _shown(screen))]


def _run(line: str, folder: Path) -> Iterator[tuple[float, bytes]]:
    """What the command writes, with the seconds before it."""
    inner, outer = pty.openpty()
    ioctl(outer, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    shell = f'surefoot() {{ {shlex.quote(sys.executable)} -m surefoot "$@"; }}; {line}'
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    process = subprocess.Popen(
        ["bash", "-c", shell],
        cwd=folder, env=environment, stdin=outer, stdout=outer, stderr=outer, start_new_session=True,
    )  # fmt: skip
    os.close(outer)
    before = time.monotonic()
    while data := _read(inner):
        now = time.monotonic()
        yield now - before, data
        before = now
    os.close(inner)
    if process.wait():
        raise RuntimeError(f"{line} ended with {process.returncode}")


def _read(terminal: int) -> bytes:
    select.select([terminal], [], [])
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end is closed
        return b""


def _shown(screen: pyte.Screen) -> tuple[str, ...]:
    return tuple(line.rstrip() for line in screen.display)


def _above(screen: pyte.Screen) -> tuple[str, ...]:
    return _shown(screen)[: screen.cursor.y]


def thinned(frames: Sequence[Frame]) -> list[Frame]:
    """Frames that differ, and not more often than an eye sees."""
    kept: list[Frame] = []
    for frame in frames:
        if kept and frame.at_s - kept[-1].at_s < FRAME_S:
            kept[-1] = Frame(kept[-1].at_s, frame.lines)
        elif not kept or frame.lines != kept[-1].lines:
            kept.append(frame)
    return kept


def draw(frames: Sequence[Frame]) -> str:
    total = frames[-1].at_s + LAST_S
    rows = max(row for frame in frames for row, line in enumerate(frame.lines, 1) if line)
    width, height = round(COLUMNS * CELL + 2 * MARGIN), TOP + rows * LINE + MARGIN
    ends = [*(frame.at_s for frame in frames[1:]), total]
    rules = [
        _rule(number, frame.at_s, end, total) for number, (frame, end) in enumerate(zip(frames, ends, strict=True))
    ]
    moving = "@media (prefers-reduced-motion: no-preference){" + "".join(rules) + "}"
    dots = "".join(
        f'<circle cx="{20 + 20 * number}" cy="20" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    groups = [_group(number, frame, number == len(frames) - 1) for number, frame in enumerate(frames)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">\n<style>{STYLE}{moving}</style>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#16181d"/>{dots}\n' + "\n".join(groups) + "\n</svg>\n"
    )


def _rule(number: int, start: float, end: float, total: float) -> str:
    """The frame is there from start to end, in each round."""
    first, last = 100 * start / total, 100 * end / total
    shown = f"0%{{visibility:hidden}}{first:.3f}%{{visibility:visible}}{last:.3f}%,100%{{visibility:hidden}}"
    if number == 0:
        shown = f"0%{{visibility:visible}}{last:.3f}%,100%{{visibility:hidden}}"
    return f"@keyframes k{number}{{{shown}}}#f{number}{{animation:k{number} {total:.2f}s step-end infinite}}"


def _group(number: int, frame: Frame, is_last: bool) -> str:
    texts = "".join(
        f'<text class="{"p" if line.startswith("$ ") else "o"}" x="{MARGIN}" y="{TOP + LINE * (row + 1)}">'
        f"{escape(line)}</text>"
        for row, line in enumerate(frame.lines)
        if line
    )
    return f'<g id="f{number}" class="{"l" if is_last else "f"}">{texts}</g>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "assets" / "terminal.svg")
    asked = parser.parse_args()
    frames = thinned(record(commands(asked.model.name, asked.tokens), asked.model.parent))
    asked.out.write_text(draw(frames))


if __name__ == "__main__":
    main()
