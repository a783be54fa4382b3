"""Writes predictions for machines with two sockets into docs/design/nodes.md.

python docs/make/nodes.py            write the tables
python docs/make/nodes.py --check    say that the page has others, with status 1
"""

import argparse
import re
import sys
from pathlib import Path

from surefoot.plan.machines import READ_SHARE, find_machine
from surefoot.plan.nodes import NUM_USERS, SPLIT, NodesPlan, better_way, nodes_plans
from surefoot.plan.planning import ServiceLevel
from surefoot.plan.subject import find_subject

PAGE = Path(__file__).parents[2] / "docs/design/nodes.md"
TABLE = re.compile(r"(?<=<!--predictions-->\n).*?(?=<!--end of predictions-->)", re.DOTALL)
MACHINES, MODELS = ("2x-epyc-9654", "2x-xeon-8480"), ("qwen3-8b", "qwen3-30b-a3b")
HEAD = """
| machine, model | users | way | prompt, s | token, ms | all answered, s | matrices | attention | link | barriers | overhead | sending |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501
# What SGLang's developers measured: one user, 1,024 tokens of prompt and of answer, 8 bits.
PEER = ("2x-xeon-6980p", "llama-3.3-70b:q8_0", ServiceLevel(1024, 1024))
PEER_HEAD = """
| 70 B, 8 bits, one user, two Xeon 6980P | prompt of 1,024, s | token, ms | between sockets | weights read with, of nominal bandwidth |
|---|---|---|---|---|
| SGLang, measured by its developers | 2.64 | 76.5 | 3 % | 0.54 |
"""  # noqa: E501


def tables() -> str:
    rows = [row(machine, model, count) for machine in MACHINES for model in MODELS for count in NUM_USERS]
    return HEAD + "".join(rows) + peer_table() + "\n"


def plans_of(machine_name: str, model_name: str, service: ServiceLevel, num_users: int) -> tuple[NodesPlan, ...]:
    machine = find_machine(machine_name)
    return nodes_plans(find_subject(model_name).on(machine.host), machine, service, num_users)


def row(machine: str, model: str, num_users: int) -> str:
    """A line for each way, the better one in bold."""
    plans = plans_of(machine, model, ServiceLevel(), num_users)
    best = better_way(plans)
    return "".join(line(f"{machine}, {model}", plan, plan is best) for plan in plans)


def line(name: str, plan: NodesPlan, is_best: bool) -> str:
    way = f"**{plan.way}**" if is_best else plan.way
    figures = [f"{plan.prompt_s:.2f}", f"{1000 * plan.step_s:.1f}", f"{plan.answers_s:.1f}"]
    terms = [f"{seconds:.2f}" for seconds in plan.terms.values()]
    return f"| {' | '.join([name, str(plan.num_users), way, *figures, *terms])} |\n"


def peer_table() -> str:
    machine, model, service = PEER
    (split,) = [plan for plan in plans_of(machine, model, service, 1) if plan.way == SPLIT]
    rates, work = find_machine(machine).rates, find_subject(model).on(find_machine(machine).host).work
    read = sum(use.read_bytes for use in (*work.matrices, *work.head)) / split.step_s
    reached = READ_SHARE * read / rates.read_bytes_per_second
    between = (split.parts.link + split.parts.barriers) / split.answers_s
    figures = f"{split.prompt_s:.2f} | {1000 * split.step_s:.1f} | {100 * between:.0f} % | {reached:.2f}"
    return f"{PEER_HEAD}| surefoot, predicted | {figures} |\n"


def fill(text: str) -> str:
    """The page with the tables of the code. Raises ValueError if it has no place for them."""
    filled, count = TABLE.subn(lambda _: tables(), text)
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} places for the tables, not 1")
    return filled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = PAGE.read_text()
    filled = fill(text)
    if not parser.parse_args().check:
        PAGE.write_text(filled)
    elif filled != text:
        sys.exit(f"{PAGE.name}: the predictions are not the code's: run python docs/make/nodes.py")


if __name__ == "__main__":
    main()
