"""Fills the figures of README and docs from docs/results, or checks that they agree.

python docs/make/results.py            write the figures into the pages
python docs/make/results.py --check    say where a page and the results differ, with status 1
python docs/make/results.py record NAME RUN.json --machine B --code native/kernels --command "..." FIGURE...
                                       keep figures of a benchmark's --json as docs/results/NAME.json

A page names the source of a figure in a comment right behind it: `1.54<!--engine_qwen_b.vs_llamacpp_8-->`. Behind the
figure's name may stand `.low`, `.high` or `.samples`; `NAME.date` and `NAME.machine` are facts of the run. A figure
that misses its aim is bold. `†` follows a figure if the code that it measures has changed since.
"""

import argparse
import hashlib
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
MACHINES = "machines"  # the file that describes the machines
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FILLED = re.compile(r"[\w.,*†%/-]*<!--(?P<name>\w+)\.(?P<figure>\w+)(?:\.(?P<part>low|high|samples))?-->")
STALE = "†"
CODE_SUFFIXES = (".py", ".cpp", ".h", ".cmake", ".json", ".toml")
KERNELS = tuple(
    f"native/{folder}" for folder in ("core", "include", "kernels", "variants", "defaults", "architectures")
)
MODEL = (*KERNELS, *(f"src/surefoot/{layer}" for layer in ("ops", "models", "runner")))
ENGINE = (*MODEL, *(f"src/surefoot/{layer}" for layer in ("engine", "cache", "speed", "scheduler", "kv", "sampling")))
SERVER = (*ENGINE, *(f"src/surefoot/{layer}" for layer in ("server", "api", "text")))
CODE_GROUPS = {"kernels": KERNELS, "model": MODEL, "engine": ENGINE, "server": SERVER}


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure with its samples."""

    values: tuple[float, ...]  # a sample each; a single one is the median that was kept of several
    at_least: float | None = None  # the aim
    at_most: float | None = None

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def is_missed(self) -> bool:
        low, high = self.at_least, self.at_most
        return (low is not None and self.value < low) or (high is not None and self.value > high)


@dataclass(frozen=True)
class Result:
    """The figures of one run, or of several of the same command."""

    what: str  # a sentence
    command: str
    commit: str  # that was measured; for older runs the one that noted the figures
    date: str
    machine: str  # one of machines.json
    code: tuple[str, ...]  # paths, or names of CODE_GROUPS, whose change makes the figures old
    code_digest: str  # of these, as measured
    figures: Mapping[str, MeasuredFigure]
    others_cpu_share: float | None = None  # of the processors, taken by other programs; None: not kept
    note: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> "Result":
        fields = json.loads(file.read_text())
        figures = {
            name: MeasuredFigure(**{**values, "values": tuple(values["values"])})
            for name, values in fields.pop("figures").items()
        }
        return cls(figures=figures, code=tuple(fields.pop("code")), **fields)

    def write(self, file: Path) -> None:
        """A line for each fact, figure and detail, so that a change can be read."""
        fields = {name: value for name, value in asdict(self).items() if value not in (None, "", {})}
        for name in fields["figures"]:
            fields["figures"][name] = {
                key: value for key, value in fields["figures"][name].items() if value is not None
            }
        file.write_text("{\n" + ",\n".join(_lines(fields)) + "\n}\n")

    @cached_property
    def is_stale(self) -> bool:
        return digest_of_code(self.code) != self.code_digest


def _lines(fields: Mapping[str, Any], indent: str = " ") -> Iterator[str]:
    for name, value in fields.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, dict) and indent == " ":
            text = "{\n" + ",\n".join(_lines(value, "  ")) + "\n }"
        yield f"{indent}{json.dumps(name)}: {text}"


def digest_of_code(code: Sequence[str], root: Path = ROOT) -> str:
    """Of the sources below these paths. A file or folder that is gone counts as changed."""
    content = hashlib.sha256()
    for path in (path for entry in code for path in CODE_GROUPS.get(entry, (entry,))):
        place = root / path
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file() and file.suffix in CODE_SUFFIXES:
                content.update(f"{file.relative_to(root)}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return content.hexdigest()[:16]


def read_results() -> dict[str, Result]:
    return {file.stem: Result.read(file) for file in sorted(RESULTS.glob("*.json")) if file.stem != MACHINES}


def read_machines() -> dict[str, str]:
    return dict(json.loads((RESULTS / f"{MACHINES}.json").read_text()))


def fill(text: str, results: Mapping[str, Result]) -> str:
    """The page with the figures of the results. Raises KeyError for one that there is not."""

    def replace(found: re.Match[str]) -> str:
        return _shown(results[found["name"]], found["figure"], found["part"]) + found[0][found[0].index("<!--") :]

    return FILLED.sub(replace, text)


def _shown(result: Result, name: str, part: str | None) -> str:
    if name in ("date", "machine"):
        return str(getattr(result, name))
    figure = result.figures[name]
    if part == "samples":
        return str(len(figure.values))
    if part is not None:
        return number(min(figure.values) if part == "low" else max(figure.values))
    shown = number(figure.value) + (STALE if result.is_stale else "")
    return f"**{shown}**" if figure.is_missed else shown


def number(value: float) -> str:
    """Three digits at most, and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{float(f'{value:.3g}'):f}".rstrip("0").rstrip(".")


def differences(results: Mapping[str, Result]) -> Iterator[str]:
    for page in PAGES:
        text = page.read_text()
        for line, (is_now, should_be) in enumerate(
            zip(text.splitlines(), fill(text, results).splitlines(), strict=True), 1
        ):
            if is_now != should_be:
                yield f"{page.relative_to(ROOT)}:{line}\n  has       {is_now}\n  should be {should_be}"


def record(arguments: argparse.Namespace) -> None:
    run = json.loads(Path(arguments.run).read_text())
    names = arguments.figures or [name for name, value in run["figures"].items() if value is not None]
    command = ("git", "rev-parse", "--short", "HEAD")
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    Result(
        what=arguments.what,
        command=arguments.command,
        commit=commit,
        date=datetime.now(UTC).date().isoformat(),
        machine=arguments.machine,
        code=tuple(arguments.code),
        code_digest=digest_of_code(arguments.code),
        figures={name: _figure(run, name) for name in names},
        others_cpu_share=run["machine"].get("others_cpu_share"),
        details={key: run[key] for key in ("model", "peers", "machine") if key in run},
    ).write(RESULTS / f"{arguments.name}.json")


def _figure(run: Mapping[str, Any], name: str) -> MeasuredFigure:
    target = run["targets"].get(name)
    samples = run.get("samples", {}).get(name) or [run["figures"][name]]
    bound = {} if target is None else {"at_least" if target["at_least"] else "at_most": target["bound"]}
    return MeasuredFigure(tuple(samples), **bound)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    actions = parser.add_subparsers()
    recording = actions.add_parser("record")
    for name in ("name", "run"):
        recording.add_argument(name)
    for name in ("--what", "--machine", "--command"):
        recording.add_argument(name, required=True)
    recording.add_argument("--code", nargs="+", required=True)
    recording.add_argument("--figures", nargs="*")
    recording.set_defaults(record=True)
    arguments = parser.parse_args()
    if "record" in arguments:
        record(arguments)
        return
    results = read_results()
    if arguments.check:
        found = list(differences(results))
        sys.exit("\n".join([*found, "run python docs/make/results.py"]) if found else 0)
    for page in PAGES:
        page.write_text(fill(page.read_text(), results))


if __name__ == "__main__":
    main()
