"""Prompts for the benchmark of speculation: edits whose answers repeat much of the prompt, and free chat."""

import difflib
import fnmatch
import heapq
import inspect
import statistics
import textwrap
from collections.abc import Callable

NUM_CHATS = 32

# Pure Python functions of the standard library, with a name in each to replace.
FUNCTIONS: tuple[tuple[Callable[..., object], str, str], ...] = (
    (textwrap.dedent, "margin", "common_margin"),
    (statistics.median_grouped, "interval", "class_width"),
    (heapq.nsmallest, "result", "smallest"),
    (textwrap.shorten, "width", "max_width"),
    (difflib.get_close_matches, "cutoff", "threshold"),
    (statistics.quantiles, "result", "cut_points"),
    (fnmatch.filter, "pat", "pattern"),
    (heapq.nlargest, "result", "largest"),
)
RECORDS = (
    ("Ada Lovelace", "London", 36), ("Alan Turing", "Wilmslow", 41), ("Grace Hopper", "Arlington", 85),
    ("Edsger Dijkstra", "Nuenen", 72), ("Barbara Liskov", "Boston", 84), ("Donald Knuth", "Stanford", 86),
    ("Frances Allen", "Schenectady", 88), ("Niklaus Wirth", "Zurich", 89),
)  # fmt: skip
TOPICS = (
    "why the sky is blue", "how bread rises", "what a lighthouse keeper does", "how to learn to swim",
    "why cats purr", "how bridges carry loads", "what makes a good friend", "how rivers shape valleys",
    "why leaves fall in autumn", "how a bicycle stays upright", "what a conductor does", "how glass is made",
    "why we dream", "how vaccines work", "what a glacier is", "how to plan a garden",
)  # fmt: skip
STYLES = ("Explain to a child {}.", "Write a short story in which somebody finds out {}.")


def edit_prompts() -> list[str]:
    """Half of them change code, half turn a text into JSON. There are sixteen, so that eight can be in flight."""
    edits = []
    for number, (function, old, new) in enumerate(FUNCTIONS):
        code = inspect.getsource(function)
        edits.append(
            f"Rename {old} to {new} in this function and give the whole function back.\n\n```python\n{code}```"
        )
        people = RECORDS[number:] + RECORDS[:number]
        lines = "\n".join(f"- {name} from {city}, {age} years old" for name, city, age in people)
        form = '[{"name": "...", "city": "...", "age": 0}, ...]'
        edits.append(f"Give these people as a JSON list of the form {form} and nothing else:\n\n{lines}")
    return edits


def chat_prompts() -> list[str]:
    """Styles alternate, so that the first few prompts cover all of them."""
    return [style.format(topic) for topic in TOPICS for style in STYLES]
