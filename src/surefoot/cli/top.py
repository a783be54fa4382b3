"""`surefoot top`: a running server, live in a terminal, from its /metrics."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from typing import Annotated

import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.sizes import time_option
from surefoot.server.overview.figures import Samples, View, look, samples_of

TIMEOUT_S = 5.0
MOST_BYTES = 8 << 20
ADVICE = {401: "give a key with --key", 403: "give an admin key with --key (surefoot keys add --admin makes one)"}
WRONG_KEY = "the key is none of the server's"
MEANS = ("step_ms", "tokens_per_step", "ttft_ms", "gap_ms", "queue_ms", "cache_hit_rate", "drafts_accepted")


def fetch(address: str, key: str | None) -> Samples:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT_S) as reply:
            text = reply.read(MOST_BYTES).decode(errors="replace")
            return samples_of(text_string_to_metric_families(text))
    except urllib.error.HTTPError as error:
        advice = WRONG_KEY if error.code == 401 and key else ADVICE.get(error.code, error.reason)
        raise OSError(f"{address} answers {error.code}: {advice}") from None
    except (urllib.error.URLError, ValueError) as error:
        raise OSError(f"{address} cannot be read: {getattr(error, 'reason', error)}") from None


def top(
    url: Annotated[str, typer.Argument(help="Of the server, as http://127.0.0.1:8000.")] = "http://127.0.0.1:8000",
    key: Annotated[
        str | None,
        typer.Option(envvar="SUREFOOT_KEY", help="An admin key, if it has keys.", show_default=False),
    ] = None,
    every_s: Annotated[float, time_option("Time between two looks.", "--every", at_least=0.2)] = 1.0,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Look for one interval, then leave. Means are since the start where the interval has none."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each look.")] = False,
) -> None:
    """Watch a running server: requests, tokens a second, time of a step, memory, cache, users."""
    address = options.server_root(url) + "/metrics"
    console = Console()
    is_live = console.is_terminal and not console.is_dumb_terminal and not once and not as_json
    with (
        suppress(KeyboardInterrupt),
        exit_on_error(),
        Live(console=console, auto_refresh=False, screen=True) if is_live else nullcontext() as live,
    ):
        for view in views(address, key, every_s):
            if once:
                view = with_means(view, look({}, fetch(address, key), every_s))
            if as_json:
                typer.echo(json.dumps(asdict(view)))
            elif live is not None:
                live.update(render(view, address), refresh=True)
            else:
                console.print(render(view, address))
            if once:
                return


def views(address: str, key: str | None, every_s: float) -> Iterator[View]:
    """A look at each interval."""
    before, began = fetch(address, key), time.monotonic()
    while True:
        time.sleep(every_s)
        after, now = fetch(address, key), time.monotonic()
        yield look(before, after, now - began)
        before, began = after, now


def with_means(view: View, since_start: View) -> View:
    """The view, with means since the start where the interval has none: an idle server has figures too."""
    return replace(view, **{name: getattr(since_start, name) for name in MEANS if getattr(view, name) is None})


def render(view: View, address: str) -> Group:
    def number(value: float | None, unit: str = "") -> str:
        return "-" if value is None else f"{value:.4g}{unit}"

    def percent(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    table = Table(title=f"{view.model} at {address}", title_justify="left", show_header=False, box=None)
    rows = [
        ("requests", f"{view.requests_running} running, {view.requests_waiting} waiting"),
        ("tokens/s", f"{number(view.generated_per_second)} generated, {number(view.prompt_per_second)} of prompts"),
        ("step", f"{number(view.step_ms, ' ms')}, {number(view.tokens_per_step)} tokens"),
        ("latency", f"{number(view.ttft_ms, ' ms')} to the first token, {number(view.gap_ms, ' ms')} between two"),
        ("queue", number(view.queue_ms, " ms")),
        ("weights", f"read with {percent(view.weights_bandwidth_use)} of the memory bandwidth"),
        ("memory", f"{percent(view.kv_use)} of keys and values in use, {percent(view.kv_cached)} cached prefixes"),
        ("cache", f"{percent(view.cache_hit_rate)} of prompt tokens, {view.preemptions} preempted"),
        ("errors", f"{view.refused} refused, {view.engine_failures} failed steps, {view.throttled_s:.1f} s throttled"),
    ]
    if view.step_ms is None:
        rows.append(("note", "no request came in this time"))
    for row in rows:
        table.add_row(*row)
    users = Table("user", "tokens/s", box=None)
    for user, speed in view.tokens_by_user.items():
        users.add_row(user or "(everyone)", number(speed))
    return Group(table, users) if view.tokens_by_user else Group(table)
