"""Options that would have no effect are refused, so that nobody relies on one that does nothing."""

from collections.abc import Mapping
from typing import Any

import typer

from surefoot.cli.options import NONE

NO_CACHE = dict.fromkeys(("cache_disk", "cache_key_file"), "has no effect with --cache-dir none, which keeps nothing")
NO_AUDIT = {"audit_required": "needs --audit-log FILE"}
NO_TLS = {"tls_key": "needs --tls-cert FILE"}
SEVERAL = "is for several models: leave it out, or name more of them"
# Options of `surefoot serve` that have no effect, and why: for one model, and for several.
OF_ONE_MODEL = {"memory": SEVERAL, "keep_alive": SEVERAL, "max_wait": SEVERAL}
OF_MANY_MODELS = {
    "model_name": "names one model: with several, give each its `name` in a file for --config",
    "fleet_key": "is for a server of one model: start one for each model, and a gateway for each fleet",
}
# Options of `surefoot run-batch`: with --fleet, and without.
THE_SERVERS = "is the servers' own where --fleet answers: start them with it"
OF_FLEET_BATCH = dict.fromkeys(
    ("float_format", "context", "threads", "variant", "speculate", "sampling", "chat_template", "pooling"), THE_SERVERS
)
OF_LOCAL_BATCH = dict.fromkeys(("fleet_key", "key"), "is for servers: name them with --fleet")


def unused_by_serve(given: Mapping[str, Any], is_one: bool) -> Mapping[str, str]:
    """Options of `surefoot serve` that have no effect beside the given ones, and why. is_one: one model is served."""
    return (
        (OF_ONE_MODEL if is_one else OF_MANY_MODELS)
        | (NO_AUDIT if given["audit_log"] is None else {})
        | (NO_CACHE if given["cache_dir"] == NONE else {})
        | (NO_TLS if given["tls_cert"] is None else {})
    )


def refuse_unused(ctx: typer.Context, unused: Mapping[str, str]) -> None:
    """Raises ValueError for an option of the command line that has no effect. unused: why, by the parameter's name."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if parameter.name in unused and source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"{parameter.opts[0]} {unused[parameter.name]}")
