"""docs/assets/goodput.svg from the figures of one run of `surefoot bench serve` beside peers.

python docs/make/goodput.py [OUT.svg]
"""

import json
import sys
from pathlib import Path
from typing import Any

from surefoot.charts.lines import line_plot

ASSETS = Path(__file__).parents[1] / "assets"


def draw(run: dict[str, Any]) -> str:
    lines: dict[str, list[tuple[float, float]]] = {}
    for point in run["points"]:
        lines.setdefault(point["engine"], []).append((point["rate"], point["goodput"]))
    return line_plot(run["title"], "requests that arrive a second", "good requests a second", lines)


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS / "goodput.svg"
    out.write_text(draw(json.loads((ASSETS / "goodput.json").read_text())))


if __name__ == "__main__":
    main()
