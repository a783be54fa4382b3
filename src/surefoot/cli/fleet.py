"""`surefoot fleet`: several machines as one server."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.options import NO_TLS, refuse_unused
from surefoot.cli.sizes import time_option
from surefoot.fleet.fleet_file import read_fleet_file
from surefoot.fleet.fleet_key import read_fleet_key
from surefoot.fleet.ray_cluster import (
    FleetStatus,
    RatesStatus,
    await_fleet,
    connect,
    fleet_status,
    start_fleet,
    stop_fleet,
    upgrade_fleet,
)
from surefoot.fleet.serve_gateway import serve_gateway
from surefoot.fleet.server_list import read_servers
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.log_limit import start_logging
from surefoot.server.listening import held_address
from surefoot.server.settings import ServerSettings

fleet = typer.Typer(help="Several machines as one server.", no_args_is_help=True)


@fleet.callback()
def _group() -> None:
    """Several machines as one server."""


@fleet.command()
def gateway(
    ctx: typer.Context,
    key: Annotated[
        Path, typer.Option("--fleet-key", "--key", help="File with the fleet's key, as the servers have it.")
    ],
    replica: Annotated[
        list[str] | None, typer.Argument(help="Address of a server, such as http://10.0.0.2:8000.", show_default=False)
    ] = None,
    servers: Annotated[
        Path | None,
        typer.Option(help="File with the servers' addresses, one a line. It is read again on change."),
    ] = None,
    host: options.Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind (0: any free one).")] = 8080,
    keys_file: Annotated[
        Path | None, typer.Option("--keys", help="File of clients' API keys, as the servers have it (--keys).")
    ] = None,
    allowed_host: options.AllowedHost = None,
    allowed_origin: Annotated[
        list[str] | None, typer.Option(help="Origin of web pages that may call the gateway (*: all).")
    ] = None,
    max_body_bytes: options.MaxBodyBytes = options.MAX_BODY_BYTES,
    deadline_s: Annotated[
        float, time_option("Longest time for a request, as the servers have it (--deadline-s).", at_least=1)
    ] = 600.0,
    drain_s: options.DrainSeconds = 30.0,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    audit_log: Annotated[Path | None, typer.Option(help="Write a line for each request without a valid key.")] = None,
    access_log: options.AccessLog = None,
) -> None:
    """Pass requests on to servers. If a server dies, hangs or drains, its answers go on at another, byte for byte."""
    start_logging()
    with exit_on_error():
        if (servers is None) == (not replica):
            raise ValueError("name the servers, or a file with their addresses (--servers)")
        if tls_cert is None:
            refuse_unused(ctx, NO_TLS)
        host, port = held_address() or (host, port)
        urls = read_servers(servers) if servers is not None else replica or []
        settings = ServerSettings(
            host=host, port=port, allowed_hosts=tuple(allowed_host or ()), allowed_origins=tuple(allowed_origin or ()),
            max_body_bytes=max_body_bytes, deadline_s=deadline_s, drain_s=drain_s, audit_log=audit_log,
            access_log=access_log, tls_cert=tls_cert, tls_key=tls_key,
        )  # fmt: skip
        keys = KeyStore(keys_file) if keys_file is not None else None
        serve_gateway(settings, keys, read_fleet_key(key), urls, servers, typer.echo)


FleetFileArgument = Annotated[Path, typer.Argument(metavar="FLEET.TOML", help="What the fleet is made of.")]


@fleet.command()
def up(file: FleetFileArgument) -> None:
    """Start a fleet on a Ray cluster: servers, spread over its machines, and a gateway. Waits until they are ready."""
    with exit_on_error():
        plan = read_fleet_file(file)
        ray = connect(plan)
        start_fleet(ray, plan)
        await_fleet(ray, plan)
    typer.echo(f"ready    http://{plan.host}:{plan.port}/v1")


@fleet.command()
def status(
    file: FleetFileArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Say which processes of a fleet run, where, and who keeps the clients' rates. Status 1 if one is not ready."""
    with exit_on_error():
        plan = read_fleet_file(file)
        found = fleet_status(connect(plan), plan)
    typer.echo(json.dumps(status_as_json(found), indent=2) if as_json else "\n".join(status_lines(found)))
    if not found.is_ready:
        raise typer.Exit(1)


def status_as_json(found: FleetStatus) -> dict[str, Any]:
    members = [
        {
            "name": member.name,
            "url": member.url,
            "ready": member.is_ready,
            "pid": None if member.state is None else member.state.pid,
            "restarts": None if member.state is None else member.state.num_restarts,
        }
        for member in found.members
    ]
    return {"ready": found.is_ready, "members": members, "rates": None if found.rates is None else asdict(found.rates)}


def status_lines(found: FleetStatus) -> Iterator[str]:
    for member in found.members:
        process = (
            "no answer" if member.state is None else f"pid {member.state.pid}, {member.state.num_restarts} restarts"
        )
        yield f"{member.name:<12} {'ready' if member.is_ready else 'NOT READY':<10} {member.url:<28} {process}"
    if found.rates is not None:
        yield f"{'rates':<12} {_rates_words(found.rates)}"


def _rates_words(rates: RatesStatus) -> str:
    if rates.keeper is None:
        return "nobody keeps them yet"
    if rates.since is None:
        return f"kept by {rates.keeper}"
    since = datetime.fromtimestamp(rates.since).astimezone().isoformat(sep=" ", timespec="seconds")
    return f"kept by {rates.keeper} since {since}, leases of {rates.users} users at {rates.gateways} gateways"


@fleet.command()
def upgrade(file: FleetFileArgument) -> None:
    """Restart one server after the other as the file says now. Its answers go on at the others meanwhile."""
    with exit_on_error():
        plan = read_fleet_file(file)
        upgrade_fleet(connect(plan), plan, typer.echo)


@fleet.command()
def down(file: FleetFileArgument) -> None:
    """Stop a fleet: the gateway, then the servers."""
    with exit_on_error():
        plan = read_fleet_file(file)
        typer.echo(f"{stop_fleet(connect(plan), plan)} stopped")
