"""`surefoot verify`: the same requests alone and in hostile company, compared bit for bit."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from surefoot.cli import options
from surefoot.cli.errors import told
from surefoot.cli.progress import loading
from surefoot.ops import supported_variants
from surefoot.ops.backend import choose_variant
from surefoot.verify import ALL, HOSTILE, QUICK, TOGETHER, Condition, Finding, Verifier, elsewhere

NUM_REQUESTS, NUM_TOKENS = 64, 24
QUICK_REQUESTS, QUICK_TOKENS = 16, 8


def verify(
    model: options.Model,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer requests, shorter answers.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every pair of chunk and block size, cached or not.")] = False,
    num_requests: Annotated[int | None, typer.Option("--requests", min=1, help="How many; 64 by default.")] = None,
    num_tokens: Annotated[int | None, typer.Option("--tokens", min=1, help="Of an answer, at most.")] = None,
    variants: Annotated[
        list[str] | None,
        typer.Option("--variant", help="Only this one; may be repeated. By default all that run here."),
    ] = None,
    float_format: options.Format = "w8",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Give requests of every kind alone, then together: at random times, in chunks of any size, preempted, cached or
    not, with drafts right and wrong, with little memory, on every variant and number of threads. Tokens and the bits
    of logprobs must be the same.

    Ends with status 1 if anything differs.
    """
    with told(), loading(model.name) as report:
        verifier = Verifier(
            model,
            num_requests or (QUICK_REQUESTS if quick else NUM_REQUESTS),
            num_tokens or (QUICK_TOKENS if quick else NUM_TOKENS),
            float_format,
            report,
        )
        chosen = _conditions(quick, every, [choose_variant(one) for one in variants or supported_variants()])
        console = Console(stderr=True)
        findings = []
        for number, finding in enumerate(verifier.check(chosen), 1):
            findings.append(finding)
            if console.is_terminal:
                console.print(f"{number} of {len(chosen)}: {finding.condition.name}: {_verdict(finding)}")
    if as_json:
        typer.echo(json.dumps(_facts(verifier, findings), indent=2))
    else:
        Console().print(_table(verifier, findings))
    if any(finding.differences for finding in findings):
        raise typer.Exit(1)


def _conditions(quick: bool, every: bool, variants: list[str]) -> list[Condition]:
    company = (TOGETHER, HOSTILE) if quick else ALL if every else QUICK
    return [*company, *elsewhere([HOSTILE] if quick else [TOGETHER, HOSTILE], variants, (1, 2))]


def _verdict(finding: Finding) -> str:
    return f"{len(finding.differences)} differ" if finding.differences else "same bits"


def _facts(verifier: Verifier, findings: list[Finding]) -> dict[str, Any]:
    return {
        "same": not any(finding.differences for finding in findings),
        "num_requests": len(verifier.requests),
        "num_samples": len(verifier.alone),
        "conditions": [{**asdict(finding), "same": not finding.differences} for finding in findings],
    }


def _table(verifier: Verifier, findings: list[Finding]) -> Table:
    title = f"{len(verifier.requests)} requests, {len(verifier.alone)} samples, beside each alone"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=0)
    for number, column in enumerate(
        ("company", "steps", "preempted", "cached", "drafts right", "tokens", "seconds", "verdict")
    ):
        table.add_column(column, justify="right" if 0 < number < 7 else "left")
    for finding in findings:
        table.add_row(*_cells(finding))
    return table


def _cells(finding: Finding) -> Iterator[str]:
    yield finding.condition.name
    for count in (finding.num_steps, finding.num_preemptions, finding.num_cached):
        yield f"{count:,}"
    yield f"{finding.num_accepted:,} of {finding.num_drafted:,}" if finding.num_drafted else ""
    yield f"{finding.num_tokens:,}"
    yield f"{finding.seconds:.1f}"
    yield _verdict(finding) + "".join(
        f"\n{one.request} sample {one.sample}: {one.what} from token {one.place} on" for one in finding.differences[:3]
    )
