"""`surefoot verify`: the same requests alone and under hostile conditions, compared bit for bit."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.interrupts import interrupts
from surefoot.cli.progress import progress
from surefoot.cli.sizes import time_option
from surefoot.formats import AUTO_FORMAT
from surefoot.ops import supported_variants
from surefoot.ops.backend import choose_variant
from surefoot.verify import ALL, HOSTILE, QUICK, TOGETHER, Condition, Finding, Verifier, on_variants

NUM_REQUESTS, NUM_TOKENS, MAX_PROMPT_TOKENS, SHARE_S = 64, 24, 4608, 20.0
QUICK_REQUESTS, QUICK_TOKENS, QUICK_MAX_PROMPT_TOKENS, QUICK_SHARE_S = 8, 8, 1200, 4.0


def verify(
    model: options.Model,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer requests and shorter answers.")] = False,
    every: Annotated[
        bool,
        typer.Option("--all", help="Try every pair of chunk size and block size, with the prefix cache and without."),
    ] = False,
    num_requests: Annotated[
        int | None,
        typer.Option(
            "--requests",
            min=1,
            help="Number of requests with random prompts, besides the natural ones (default: 64, or 8 with --quick).",
        ),
    ] = None,
    num_tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, help="Longest answer in tokens (default: 24, or 8 with --quick).")
    ] = None,
    variants: Annotated[
        list[str] | None,
        typer.Option(
            "--variant", help="Check this variant only. Can be repeated (default: all that run on this machine)."
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        time_option("Stop after this time and report what was checked by then.", at_least=0.5, unit="m"),
    ] = None,
    float_format: options.Format = AUTO_FORMAT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each condition, then one for all of them.")
    ] = False,
) -> None:
    """Check that answers are the same bits whatever happens around them. Requests of every kind run alone, then
    together: arriving at random times, in chunks of any size, preempted, with cached prefixes and without, with right
    and wrong drafts, with little memory, on every variant and number of threads. Tokens, logprobs and embeddings must
    be equal bit for bit.

    A verdict is printed after each condition; Ctrl-C stops and reports what was checked. A slow variant checks as many
    requests as its share of the time allows. The exit status is 1 if anything differs or nothing could be compared.
    """
    deadline = math.inf if minutes is None else time.monotonic() + minutes
    with exit_on_error(), progress() as say:
        verifier = Verifier(
            model,
            num_requests or (QUICK_REQUESTS if quick else NUM_REQUESTS),
            num_tokens or (QUICK_TOKENS if quick else NUM_TOKENS),
            float_format,
            QUICK_MAX_PROMPT_TOKENS if quick else MAX_PROMPT_TOKENS,
            QUICK_SHARE_S if quick else SHARE_S,
            lambda done, total: say(f"loading {model.name}", done, total),
            lambda done, total: say("requests alone", done, total),
        )
        chosen = _conditions(quick, every, [choose_variant(name) for name in variants or supported_variants()])
        with interrupts() as is_pressed:
            if not as_json:
                typer.echo(_announcement(verifier, chosen, minutes))
            summary = _run(verifier, chosen, lambda: is_pressed() or time.monotonic() >= deadline, as_json)
    typer.echo(json.dumps(summary.facts()) if as_json else summary.sentence())
    if not summary.is_same:
        raise typer.Exit(1)


def _conditions(quick: bool, every: bool, variants: list[str]) -> list[Condition]:
    """The conditions to check, the most likely to show a difference first."""
    others = () if quick else ALL if every else QUICK
    rest = [condition for condition in others if condition not in (TOGETHER, HOSTILE)]
    return [TOGETHER, HOSTILE, *on_variants([HOSTILE] if quick else [TOGETHER, HOSTILE], variants, (1, 2)), *rest]


def _announcement(verifier: Verifier, chosen: Sequence[Condition], most_s: float | None) -> str:
    what = f"{len(verifier.requests)} requests alone, then under {len(chosen)} conditions"
    seconds = verifier.predict_s(chosen)
    if most_s is not None and most_s < seconds:
        return (
            f"{what}: would take about {_time(seconds)}, and ends after {_time(most_s)} with what was checked by then"
        )
    return f"{what}: about {_time(seconds)}; Ctrl-C or --minutes ends it earlier"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"


@dataclass
class _Summary:
    """Totals over all conditions. Conditions are named."""

    num_conditions: int  # to check
    num_requests: int
    num_samples: int = 0  # answers that were compared
    seconds: float = 0.0
    has_grammars: bool = True  # whether some of the requests have grammars
    differ: list[str] = field(default_factory=list)  # conditions with a difference
    whole: list[str] = field(default_factory=list)  # conditions that checked every request
    partial: list[str] = field(default_factory=list)  # conditions that had time for some requests only

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
    width = max(len(condition.name) for condition in chosen)
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
        f"{finding.num_accepted:,} of {finding.num_drafted:,} drafts accepted": finding.num_drafted,
        f"no {' and no '.join(finding.unmet)} happened": finding.unmet,
    }
    said = ", ".join(text for text, is_said in counts.items() if is_said)
    yield f"{finding.condition.name:<{width}}  {verdict:<9} {finding.seconds:6.1f} s  {said}"
    for difference in finding.differences[:3]:
        where = f"{difference.request} sample {difference.sample}"
        yield f"  {where}: {difference.what} from token {difference.place} on"
