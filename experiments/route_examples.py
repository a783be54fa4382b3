"""Examples with known answers for `surefoot eval route`: arithmetic, and fields to be found in a text.

python -m experiments.route_examples arithmetic 200 > sums.jsonl
surefoot eval route SMALL LARGE --examples sums.jsonl --match number
"""

import argparse
import json
import random
from collections.abc import Callable
from itertools import cycle

WORDS = {
    "name": ("Ada", "Bruno", "Chen", "Dunja", "Emeka", "Farah", "Goran", "Hana"),
    "city": ("Oslo", "Lima", "Accra", "Kyoto", "Graz", "Perth", "Quito", "Turin"),
    "item": ("lamp", "chair", "kettle", "bicycle", "clock", "tent", "piano", "ladder"),
}


def arithmetic(draw: random.Random, level: int) -> tuple[str, str]:
    """level: digits of the numbers, from 1 to 4."""
    a, b = (draw.randrange(10 ** (level - 1), 10**level) for _ in range(2))
    sign, result = draw.choice([("+", a + b), ("-", a - b), ("*", a * b)])
    return f"What is {a} {sign} {b}? Answer with the number alone.", str(result)


def extraction(draw: random.Random, level: int) -> tuple[str, str]:
    """level: fields asked for, from 1 to 4."""
    facts: dict[str, str | int] = {key: draw.choice(words) for key, words in WORDS.items()}
    facts["price"] = draw.randrange(5, 900)
    text = f"{facts['name']} from {facts['city']} sold a {facts['item']} for {facts['price']} euros."
    wanted = {key: facts[key] for key in draw.sample(sorted(facts), level)}
    return f"{text}\nGive {', '.join(wanted)} as one JSON object with these keys, and nothing else.", json.dumps(wanted)


TASKS: dict[str, Callable[[random.Random, int], tuple[str, str]]] = {"arithmetic": arithmetic, "json": extraction}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("count", type=int)
    arguments = parser.parse_args()
    draw = random.Random(1)
    for _, level in zip(range(arguments.count), cycle((1, 2, 3, 4)), strict=False):
        prompt, answer = TASKS[arguments.task](draw, level)
        print(json.dumps({"prompt": prompt, "answer": answer}))


if __name__ == "__main__":
    main()
