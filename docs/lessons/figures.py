"""Runs all lessons' scripts and puts their tables and plots into the pages. Nothing else should run on the machine.

python docs/lessons/figures.py MODEL
"""

import contextlib
import importlib
import io
import sys
from pathlib import Path

from surefoot import machine
from surefoot.bench.harness.loaded_model import RunFacts
from surefoot.ops import Backend

HERE = Path(__file__).parent
BEGIN, END = "<!-- figures -->", "<!-- end -->"
LESSONS = ("batching", "static_batching", "fragmentation", "prefix_sharing", "acceptance", "sensitivity",
           "kv_shrinking", "limb_cost", "tiles", "states", "chains_and_trees")  # fmt: skip
WITHOUT_MODEL = {"fragmentation", "kv_shrinking", "limb_cost", "tiles", "states"}
ALIKE = {"fragmentation", "sensitivity"}  # on every machine: nothing is timed


def run(name: str, model: str) -> str:
    """What the script prints, its plot, and under what conditions."""
    page = name.replace("_", "-")
    printed, facts = io.StringIO(), RunFacts()
    with contextlib.redirect_stdout(printed):
        words = [] if name in WITHOUT_MODEL else [model]
        importlib.import_module(name).main([*words, "--svg", str(HERE / f"{page}.svg")])
    others, backend = facts.others_share, Backend()
    made_by = f"{'' if name in WITHOUT_MODEL else Path(model).stem + ', '}{backend.variant}, {backend.threads} threads"
    backend.close()
    busy = "" if others is None else f"; other programs took {others:.0%} of the processors"
    timed_on = "The same on every machine." if name in ALIKE else f"{made_by}, {machine.cpu_model()}{busy}."
    return as_text(f"![Predicted and measured]({page}.svg)", printed.getvalue(), timed_on)


def as_text(plot: str, printed: str, conditions: str) -> str:
    """Tables stand apart from lines of text."""
    lines = printed.strip().splitlines()
    spaced: list[str] = []
    for before, line in zip(["", *lines], lines, strict=False):
        new_table = line.startswith("|") and before.startswith("|") and line.count("|") != before.count("|")
        spaced += [""] * (new_table or (line.startswith("|") != before.startswith("|") and before != "")) + [line]
    return "\n".join([plot, "", conditions, "", *spaced])


def put(page: Path, text: str) -> None:
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def main() -> None:
    sys.path.insert(0, str(HERE))
    for name in LESSONS:
        print(name, flush=True)
        put(HERE / f"{name.replace('_', '-')}.md", run(name, sys.argv[1]))


if __name__ == "__main__":
    main()
