"""docs/assets/goodput.svg from the results of `surefoot bench serve` beside peers.

python docs/make/goodput.py [OUT.svg]
"""

import json
import sys
from pathlib import Path
from typing import Any

from surefoot.bench.serve.report import goodput_lines
from surefoot.charts.lines import line_plot

DOCS = Path(__file__).parents[1]
SHOWN = "goodput_qwen_b"


def draw(result: dict[str, Any]) -> str:
    model, machine = result["details"]["model"], result["details"]["machine"]
    lines, spreads = goodput_lines(model["points"])
    title = f"Requests answered in time, by load ({Path(model['path']).stem}, {machine['usable_cores']} cores)"
    return line_plot(title, "requests that arrive a second", "good requests a second", lines, spreads)


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "assets/goodput.svg"
    out.write_text(draw(json.loads((DOCS / "results" / f"{SHOWN}.json").read_text())))


if __name__ == "__main__":
    main()
