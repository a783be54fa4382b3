"""`surefoot plan`: what a model will do on a machine, before it is fetched or the machine is bought."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from surefoot.api.opening import open_model
from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.plan.machines import THIS, find_machine, measure_machine
from surefoot.plan.page import plan_page
from surefoot.plan.planning import MAX_USERS, Plan, ServiceLevel, compare_machines, make_plan
from surefoot.plan.subject import plan_model
from surefoot.weights import find_headers

GB = 1e9
ANY = "any"  # machine


def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A GGUF file, a Hugging Face folder or id.")],
    users: Annotated[int | None, typer.Option(min=1, help="Users to simulate.")] = None,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 1000,
    answer: Annotated[int, typer.Option(min=2, help="Tokens of an answer.")] = 200,
    ttft: Annotated[float, typer.Option(min=0.001, help="Seconds to the first token that 95 % must not exceed.")] = 5.0,
    tokens_per_second: Annotated[
        float, typer.Option(min=0.001, help="Tokens/s that 95 % of answers must reach.")
    ] = 5.0,
    pause: Annotated[float, typer.Option(min=0, help="Seconds between an answer and the next question.")] = 30.0,
    shared: Annotated[int, typer.Option(min=0, help="Tokens that all prompts begin with, which the cache holds.")] = 0,
    on: Annotated[
        str, typer.Option(help="this, a known machine's name, FILE.toml:NAME, or any: all known ones.")
    ] = THIS,
    float_format: options.Format = "w8",
    variant: options.Variant = None,
    threads: options.Threads = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time to measure this machine.")] = 12.0,
    search: Annotated[bool, typer.Option(help="Find how many users are carried.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with a roofline and a load curve.")] = None,
) -> None:
    """Say what a model will do on a machine: whether it fits, how fast it is, how many users it carries, what limits
    it.

    Only the model's header is read, and of a model on the hub only that is fetched: a few megabytes. Users ask, wait
    for the answer, pause and ask again; the scheduler that serves them is the real one, on predicted times.
    """
    service = ServiceLevel(prompt, answer, ttft, tokens_per_second, min(shared, prompt - 1), pause)
    with exit_on_error():
        with TemporaryDirectory(prefix="surefoot-plan-") as folder:
            subject = plan_model(open_model(find_headers(model, Path(folder))), float_format)
        if on == ANY:
            _show_machines(compare_machines(subject, service, users), as_json)
            return
        machine = measure_machine(subject, variant, threads, seconds) if on == THIS else find_machine(on)
        made = make_plan(subject, machine, service, users, search)
        if html is not None:
            html.write_text(plan_page(subject, machine, made))
    if as_json:
        typer.echo(json.dumps(made.as_json(), indent=2))
    else:
        _show(made, Console())


def _show_machines(plans: Sequence[Plan], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([plan.as_json() for plan in plans], indent=2))
        return
    table = Table(title=f"{plans[0].model} on known machines", title_justify="left")
    for heading in ("machine", "fits", "first token, s (95 %)", "tokens/s (95 %)", "meets the service"):
        table.add_column(heading)
    for plan in plans:
        load = plan.load
        row = ("no", "", "", "no") if load is None else (
            "yes", f"{load.first_token_p95_s:.2f}", f"{load.tokens_per_second_p5:.1f}",
            "yes" if load.meets_service else "no",
        )  # fmt: skip
        table.add_row(plan.machine, *row)
    Console().print(table)


def _show(plan: Plan, console: Console) -> None:
    title = f"{plan.model} on {plan.machine}: {plan.variant}, {plan.threads} threads"
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in _rows(plan):
        table.add_row(name, value)
    console.print(table)
    if plan.alternatives:
        console.print(_alternatives(plan))


def _rows(plan: Plan) -> list[tuple[str, str]]:
    memory, alone, load = plan.memory, plan.alone, plan.load
    rows = [
        ("Machine", f"{plan.machine_source}; {plan.read_bytes_per_second / GB:.1f} GB/s"),
        (
            "Memory",
            f"{memory.weights / GB:.2f} GB weights, {(memory.workspace + memory.process) / GB:.2f} GB program, "
            f"{memory.request / 1e6:.0f} MB a request, of {memory.limit / GB:.1f} GB",
        ),
        ("Fits", f"yes, {memory.num_requests} requests at once" if memory.fits else "no: " + "; or ".join(plan.cuts)),
    ]
    if alone is not None:
        rows += [
            ("One user, first token", f"{alone.first_token_s:.2f} s ({alone.first_token_bound})"),
            ("One user, answer", f"{alone.tokens_per_second:.1f} tokens/s ({alone.tokens_bound})"),
        ]
    if load is not None:
        met = "meets the service" if load.meets_service else "does not meet the service"
        rows += [
            (
                f"{load.num_users} users, first token",
                f"{load.first_token_p50_s:.2f} s, 95 %: {load.first_token_p95_s:.2f} s",
            ),
            (
                f"{load.num_users} users, answer",
                f"{load.tokens_per_second_p50:.1f} tokens/s, 95 %: {load.tokens_per_second_p5:.1f}; "
                f"{load.total_tokens_per_second:.1f} together; {met}",
            ),
        ]
    if plan.num_users is not None:
        at_least = "or more " if plan.num_users == MAX_USERS else ""
        rows.append(("Carries", f"{plan.num_users} {at_least}users (then {plan.users_bound})"))
    return rows


def _alternatives(plan: Plan) -> Table:
    table = Table(title="What would change it", title_justify="left")
    for heading in ("change", "first token, s", "tokens/s", "users"):
        table.add_column(heading)
    for other in plan.alternatives:
        users = "" if other.num_users is None else f"{other.num_users}"
        table.add_row(other.change, f"{other.first_token_s:.2f}", f"{other.tokens_per_second:.1f}", users)
    return table
