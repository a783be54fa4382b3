"""`surefoot plan`: what a model will do on a machine, before it is fetched or the machine is bought."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.sizes import time_option
from surefoot.formats import AUTO_FORMAT
from surefoot.plan.alternatives import Alternative, find_alternatives
from surefoot.plan.machines import THIS, find_machine, measure_machine
from surefoot.plan.nodes import NUM_USERS, NodesPlan, better_way, nodes_plans, why
from surefoot.plan.page import plan_page
from surefoot.plan.passing import find_passing, nearest_plan
from surefoot.plan.planning import MAX_USERS, ModelPlanner, OneUserPlan, Plan, ServiceLevel, compare_machines, make_plan
from surefoot.plan.shapes import known_shapes
from surefoot.plan.subject import Subject, find_subject
from surefoot.plan.wishes import EXAMPLE, Wish, read_wish
from surefoot.weights.gguf import Host

GB = 1e9
ANY = "any"  # machine


def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL]",
            help="A GGUF file, a Hugging Face folder or id, or a shape by name: qwen3-8b:q4_k_m. May be left out with "
            f"--for. Known shapes: {', '.join(known_shapes())}.",
        ),
    ] = "",
    users: Annotated[int | None, typer.Option(min=1, help="Users to simulate.")] = None,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 1000,
    answer: Annotated[int, typer.Option(min=2, help="Tokens of an answer.")] = 200,
    ttft: Annotated[float, time_option("Time to the first token that 95 % must not exceed.", at_least=0.001)] = 5.0,
    tokens_per_second: Annotated[
        float, typer.Option(min=0.001, help="Tokens/s that 95 % of answers must reach.")
    ] = 5.0,
    pause: Annotated[float, time_option("Time between an answer and the next question.")] = 30.0,
    shared: Annotated[int, typer.Option(min=0, help="Tokens that all prompts begin with, which the cache holds.")] = 0,
    on: Annotated[
        str, typer.Option(help="this, a known machine's name, FILE.toml:NAME, or any: all known ones.")
    ] = THIS,
    wanted: Annotated[
        str, typer.Option("--for", help=f"Which machines would do: {EXAMPLE}. Replaces the options above.")
    ] = "",
    watts: Annotated[float, typer.Option(min=0, help="Power of the machine at work, for joules a token.")] = 0.0,
    price: Annotated[float, typer.Option(min=0, help="Price of the machine for an hour, for that of tokens.")] = 0.0,
    float_format: options.Format = AUTO_FORMAT,
    variant: options.Variant = None,
    threads: options.Threads = None,
    seconds: Annotated[float, time_option("Time to measure this machine.")] = 12.0,
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
        wish = read_wish(wanted) if wanted else Wish(users or 0, "", service)
        subject = _find_subject(model or wish.model, float_format)
        if wanted or on == ANY:
            plans = compare_machines(subject, wish.service, wish.num_users or None)
            if as_json:
                typer.echo(json.dumps([plan.as_json() for plan in plans], indent=2))
            else:
                _show_machines(plans, subject)
            return
        if on == THIS:
            sized = subject.on(Host(variant))
            machine = measure_machine(sized, variant, threads, seconds)
        else:
            machine = find_machine(on)
            sized = subject.on(machine.host)
        machine = replace(machine, watts=watts or machine.watts, price_per_hour=price or machine.price_per_hour)
        made = make_plan(sized, machine, service, users, search)
        others = find_alternatives(ModelPlanner(sized, machine, service), made.num_users)
        ways = [nodes_plans(sized, machine, service, count) for count in NUM_USERS]
        if html is not None:
            html.write_text(plan_page(sized, machine, made))
    if as_json:
        alternatives, nodes = [asdict(other) for other in others], [asdict(way) for plans in ways for way in plans]
        typer.echo(json.dumps({**made.as_json(), "alternatives": alternatives, "nodes": nodes}, indent=2))
    else:
        _show(made, others, Console())
        if all(ways):
            _show_nodes(ways, Console())


def _find_subject(name: str, float_format: str) -> Subject:
    if not name:
        raise ValueError(f"name a model, or a size in --for: {EXAMPLE}")
    return find_subject(name, float_format)


def _show_machines(plans: Sequence[Plan], subject: Subject) -> None:
    table = Table(title=f"{plans[0].model} on known machines", title_justify="left")
    table.add_column("machine", no_wrap=True)
    for heading in ("fits", "first token, s (95 %)", "tokens/s (95 %)", "meets the service", *_EXTRA):
        table.add_column(heading)
    for plan in plans:
        table.add_row(plan.machine, *_machine_row(plan))
    Console().print(table)
    for line in (*_assumptions(plans[0]), *_what_would_pass(plans, subject)):
        typer.echo(line)


def _assumptions(plan: Plan) -> Iterator[str]:
    service, load = plan.service, plan.load
    users = f"{load.num_users} users; " if load is not None else ""
    shared = f", of which {service.shared_tokens} are shared" if service.shared_tokens else ""
    yield (
        f"assumed  {users}prompts of {service.prompt_tokens} tokens{shared}, answers of {service.answer_tokens}, "
        f"pauses of {service.pause_s:g} s before the next question; machines at their makers' rates, with nothing "
        "else running"
    )
    yield (
        f"service  95 % of answers begin within {service.first_token_s:g} s and come at {service.tokens_per_second:g} "
        f"tokens/s or more; change it as in --for {EXAMPLE}"
    )


def _what_would_pass(plans: Sequence[Plan], subject: Subject) -> Iterator[str]:
    """Nothing if a machine passes."""
    if any(plan.load is not None and plan.load.meets_service for plan in plans):
        return
    nearest = nearest_plan(plans)
    if nearest is None or nearest.load is None:
        roomiest = max(plans, key=lambda plan: plan.memory.limit)
        yield f"nearest  no machine has the memory; {roomiest.machine}: {'; or '.join(roomiest.cuts)}"
        return
    machine = find_machine(nearest.machine)
    changes = "; or ".join(find_passing(subject.on(machine.host), machine, nearest.service, nearest.load))
    yield f"nearest  {nearest.machine} would do with {changes or 'a much smaller model only'}"


_EXTRA = ("J/token", "price/1M")


def _machine_row(plan: Plan) -> tuple[str, ...]:
    load, expense = plan.load, plan.expense
    if load is None:
        return "no", "", "", "no", "", ""
    return (
        "yes",
        f"{load.first_token_p95_s:.2f}",
        f"{load.tokens_per_second_p5:.1f}",
        "yes" if load.meets_service else "no",
        "" if expense is None or expense.joules_per_token is None else f"{expense.joules_per_token:.2g}",
        "" if expense is None or expense.price_per_million is None else f"{expense.price_per_million:.2f}",
    )


def _num_users(carried: int) -> str:
    return f"{carried} or more" if carried == MAX_USERS else f"{carried}"


def _show(plan: Plan, others: Sequence[Alternative], console: Console) -> None:
    title = f"{plan.model} on {plan.machine}: {plan.variant}, {plan.threads} threads"
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in _rows(plan):
        table.add_row(name, value)
    console.print(table)
    if others:
        console.print(_alternatives(others))


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
            ("One user, answer", f"{alone.tokens_per_second:.1f} tokens/s ({alone.tokens_bound}){_of_file(alone)}"),
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
        rows.append(("Carries", f"{_num_users(plan.num_users)} users (then {plan.users_bound})"))
    return rows + _expense_rows(plan)


def _of_file(alone: OneUserPlan) -> str:
    share = alone.of_file_limit
    return "" if share is None else f", {share:.2f} of what the bytes of the file allow"


def _expense_rows(plan: Plan) -> list[tuple[str, str]]:
    expense, rows = plan.expense, list[tuple[str, str]]()
    if expense is not None and expense.joules_per_token is not None:
        rows.append(("Energy", f"{expense.joules_per_token:.2g} J a token ({expense.at})"))
    if expense is not None and expense.price_per_million is not None:
        rows.append(("Price", f"{expense.price_per_million:.2f} for a million tokens ({expense.at})"))
    return rows


def _show_nodes(ways: Sequence[Sequence[NodesPlan]], console: Console) -> None:
    """A column for each way and number of users."""
    plans = [plan for both in ways for plan in both]
    table = Table(title="One engine over all nodes (split), or one on each: predicted", title_justify="left")
    for heading in ("", *(f"{_users(plan.num_users)}: {plan.way}" for plan in plans)):
        table.add_column(heading)
    table.add_row("fits", *("yes" if plan.fits else "no" for plan in plans))
    table.add_row("a prompt alone, s", *(f"{plan.prompt_s:.2f}" for plan in plans))
    table.add_row("a token for each, ms", *(f"{1000 * plan.step_s:.1f}" for plan in plans))
    table.add_row("all answered, s; of these:", *(f"{plan.answers_s:.1f}" for plan in plans))
    for term in plans[0].terms:
        table.add_row(f"  {term}", *(f"{plan.terms[term]:.2f}" for plan in plans))
    console.print(table)
    for both in ways:
        best = better_way(both)
        console.print(f"better for {_users(best.num_users)}: {best.way}; {why(both)}", soft_wrap=True)


def _users(count: int) -> str:
    return "1 user" if count == 1 else f"{count} users"


def _alternatives(others: Sequence[Alternative]) -> Table:
    table = Table(title="What would change it", title_justify="left")
    for heading in ("change", "first token, s", "tokens/s", "users"):
        table.add_column(heading)
    for other in others:
        users = "" if other.num_users is None else f"{other.num_users}"
        table.add_row(other.change, f"{other.first_token_s:.2f}", f"{other.tokens_per_second:.1f}", users)
    return table
