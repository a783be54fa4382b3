"""`surefoot verify`: the same requests alone and in hostile company, compared bit for bit."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from surefoot.cli import options
from surefoot.cli.errors import told
from surefoot.cli.interrupts import interrupts
from surefoot.cli.progress import loading
from surefoot.ops import supported_variants
from surefoot.ops.backend import choose_variant
from surefoot.verify import ALL, HOSTILE, QUICK, TOGETHER, Condition, Finding, Verifier, elsewhere

NUM_REQUESTS, NUM_TOKENS, LONGEST, SHARE_S = 64, 24, 4608, 20.0
QUICK_REQUESTS, QUICK_TOKENS, QUICK_LONGEST, QUICK_SHARE_S = 8, 8, 1200, 4.0


def verify(
    model: options.Model,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer requests, shorter answers.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every pair of chunk and block size, cached or not.")] = False,
    num_requests: Annotated[
        int | None, typer.Option("--requests", min=1, help="Of random tokens, besides natural ones; 64 by default.")
    ] = None,
    num_tokens: Annotated[int | None, typer.Option("--tokens", min=1, help="Of an answer, at most.")] = None,
    variants: Annotated[
        list[str] | None,
        typer.Option("--variant", help="Only this one; may be repeated. By default all that run here."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Stop after this time, with what is known by then.")
    ] = None,
    float_format: options.Format = "w8",
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each condition as it comes, then one for all.")
    ] = False,
) -> None:
    """Give requests of every kind alone, then together: at random times, in chunks of any size, preempted, cached or
    not, with drafts right and wrong, with little memory, on every variant and number of threads. Tokens and the bits
    of logprobs and embeddings must be the same.

    Verdicts come one by one; Ctrl-C stops with those that are there. A slow variant gets as many requests as fit into
    its share of the time. Ends with status 1 if anything differs, or if nothing could be compared.
    """
    deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
    with told(), loading(model.name) as report:
        verifier = Verifier(
            model,
            num_requests or (QUICK_REQUESTS if quick else NUM_REQUESTS),
            num_tokens or (QUICK_TOKENS if quick else NUM_TOKENS),
            float_format,
            QUICK_LONGEST if quick else LONGEST,
            QUICK_SHARE_S if quick else SHARE_S,
            report,
        )
        chosen = _conditions(quick, every, [choose_variant(one) for one in variants or supported_variants()])
        with interrupts() as is_pressed:
            summary = _run(verifier, chosen, lambda: is_pressed() or time.monotonic() >= deadline, as_json)
    typer.echo(json.dumps(summary.facts()) if as_json else summary.sentence())
    if not summary.is_same:
        raise typer.Exit(1)


def _conditions(quick: bool, every: bool, variants: list[str]) -> list[Condition]:
    """Those that tell most come first."""
    company = () if quick else ALL if every else QUICK
    rest = [one for one in company if one not in (TOGETHER, HOSTILE)]
    return [TOGETHER, HOSTILE, *elsewhere([HOSTILE] if quick else [TOGETHER, HOSTILE], variants, (1, 2)), *rest]


@dataclass
class _Summary:
    num_conditions: int
    num_requests: int
    num_samples: int = 0  # that have been compared
    seconds: float = 0.0
    has_grammars: bool = True
    differ: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        self.num_samples += finding.num_samples
        self.seconds += finding.seconds
        (self.whole if finding.is_whole else self.partial).append(finding.condition.name)
        if finding.differences:
            self.differ.append(finding.condition.name)

    @property
    def is_same(self) -> bool:
        return not self.differ and self.num_samples > 0

    @property
    def is_complete(self) -> bool:
        return len(self.whole) == self.num_conditions

    def facts(self) -> dict[str, Any]:
        return {"same": self.is_same, "complete": self.is_complete, **asdict(self)}

    def sentence(self) -> str:
        num_done = len(self.whole) + len(self.partial)
        if not num_done:
            return "nothing was compared: allow more time"
        verdict = f"{len(self.differ)} conditions differ" if self.differ else "all the same bits"
        said = f"{verdict}: {self.num_samples:,} answers under {num_done} of {self.num_conditions} conditions"
        if self.partial:
            said += f"; {len(self.partial)} had time for some of the requests only"
        return said + ("" if self.has_grammars else "; no grammars, since this model's tokens cannot follow them")


def _run(verifier: Verifier, chosen: Sequence[Condition], is_over: Callable[[], bool], as_json: bool) -> _Summary:
    width = max(len(one.name) for one in chosen)
    if not as_json:
        typer.echo(f"{len(verifier.requests)} requests alone, then under {len(chosen)} conditions")
    summary = _Summary(len(chosen), len(verifier.requests), has_grammars=verifier.has_grammars)
    for finding in verifier.check(chosen, is_over):
        summary.add(finding)
        facts = {**asdict(finding), "same": not finding.differences}
        for line in [json.dumps(facts)] if as_json else _lines(finding, width, len(verifier.requests)):
            typer.echo(line)
    return summary


def _lines(finding: Finding, width: int, num_requests: int) -> Iterator[str]:
    verdict = f"{len(finding.differences)} DIFFER" if finding.differences else "same bits"
    counts = {
        f"{finding.num_requests} of {num_requests} requests": not finding.is_whole,
        f"{finding.num_tokens:,} tokens": True,
        f"{finding.num_preemptions} preempted": finding.num_preemptions,
        f"{finding.num_cached:,} cached": finding.num_cached,
        f"{finding.num_accepted:,} of {finding.num_drafted:,} drafts right": finding.num_drafted,
        f"no {' and no '.join(finding.unmet)} came about": finding.unmet,
    }
    said = ", ".join(text for text, is_said in counts.items() if is_said)
    yield f"{finding.condition.name:<{width}}  {verdict:<9} {finding.seconds:6.1f} s  {said}"
    for one in finding.differences[:3]:
        yield f"  {one.request} sample {one.sample}: {one.what} from token {one.place} on"
