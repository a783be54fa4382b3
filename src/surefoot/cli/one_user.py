"""A model for one user at a terminal: the options that `chat` and `generate` share, and how fast an answer came."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from surefoot.api import LLM, RequestOutput, SamplingParams
from surefoot.api.defaults import parse_sampling
from surefoot.api.opening import OpenModel, open_model
from surefoot.cli import options
from surefoot.cli.progress import loading
from surefoot.core.request import SETTABLE
from surefoot.formats import AUTO_FORMAT
from surefoot.text import TEMPLATE_NAMES
from surefoot.weights import PackedCache


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer sees it: the fields of each dataclass parameter are parameters of their own."""
    signature = inspect.signature(command)
    annotations: dict[str, Any] = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    groups = {name: group for name, group in annotations.items() if _is_group(group)}
    fields = {name: inspect.signature(group).parameters for name, group in groups.items()}
    flat = signature.replace(
        parameters=[
            field.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in signature.parameters.items()
            for field in (fields[name].values() if name in groups else [parameter])
        ]
    )

    @wraps(command)
    def run(**values: Any) -> None:
        bound = flat.bind(**values)
        bound.apply_defaults()
        arguments = bound.arguments
        filled = {
            name: group(**{field: arguments.pop(field) for field in fields[name]}) for name, group in groups.items()
        }
        command(**arguments, **filled)

    run.__signature__ = flat  # type: ignore[attr-defined]
    return run


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and is_dataclass(annotation)


class Speedometer:
    """Holds answers against the memory bandwidth that was measured at its start: decoding reads all weights, and all
    keys and values before it, for every token."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.bytes_per_second = llm.measure_bandwidth()

    def of_bandwidth(self, output: RequestOutput) -> float | None:
        """Share of the memory bandwidth that decoding used after the first token; None if there are too few tokens."""
        speed, usage = output.timings.tokens_per_second, output.usage
        if speed is None or len(output.outputs) > 1:  # samples share a step's weights
            return None
        length = usage.num_prompt + usage.num_generated // 2
        passes = usage.num_passes / usage.num_generated  # for each token; fewer than one where drafts were right
        return speed * passes * self._llm.read_bytes(length) / self.bytes_per_second

    def line(self, output: RequestOutput) -> str:
        timings, usage = output.timings, output.usage
        parts = [f"TTFT {_seconds(timings.to_first_token)}"]
        if timings.tokens_per_second is not None:
            parts.append(f"{timings.tokens_per_second:.1f} tokens/s")
        if (share := self.of_bandwidth(output)) is not None:
            parts.append(f"{share:.0%} of the bandwidth limit ({self.bytes_per_second / 1e9:.1f} GB/s)")
        if usage.num_drafted:
            share = usage.num_accepted / usage.num_drafted
            parts.append(f"{usage.num_generated / usage.num_passes:.1f} tokens a pass, {share:.0%} of drafts right")
        parts.append(f"{usage.num_prompt} + {usage.num_generated} of {self._llm.max_context} tokens")
        return " · ".join(parts)


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


@dataclass(frozen=True)
class OneUserOptions:
    """Options of a command that answers one request at a time."""

    system: options.System = None
    max_tokens: options.MaxTokens = None
    sampling: options.Sampling = None
    temperature: options.Temperature = None
    top_k: options.TopK = None
    top_p: options.TopP = None
    min_p: options.MinP = None
    repetition_penalty: options.RepetitionPenalty = None
    presence_penalty: options.PresencePenalty = None
    frequency_penalty: options.FrequencyPenalty = None
    stop: options.Stop = None
    seed: options.Seed = 0
    chat_template: options.ChatTemplate = None
    float_format: options.Format = AUTO_FORMAT
    context: options.Context = None
    threads: options.Threads = None
    variant: options.Variant = None
    speculate: options.Speculate = "auto"
    stats: options.Stats = None

    def open(self, model: Path) -> OpenModel:
        """The model before its weights are read. An option such as --top-k wins over --sampling top_k=…"""
        options = {name: getattr(self, name) for name in SETTABLE if getattr(self, name) is not None}
        opened = open_model(str(model), {**parse_sampling(self.sampling or []), **options}, self.chat_template)
        for line in opened.sampling.ignored:
            typer.echo(line, err=True)
        return opened

    def params(self, opened: OpenModel) -> SamplingParams:
        return replace(
            opened.sampling.params, stop=tuple(self.stop or ()), seed=self.seed, max_tokens=self.max_tokens
        )  # fmt: skip

    def load(self, opened: OpenModel, cache: PackedCache | None = None) -> LLM:
        with loading(opened.path.name) as report:
            return LLM(
                opened, float_format=self.float_format, max_context=self.context, max_running=1, threads=self.threads,
                variant=self.variant, speculate=self.speculate, packed_cache=cache, report=report,
            )  # fmt: skip

    def speedometer(self, llm: LLM, is_shown: bool) -> Speedometer | None:
        """is_shown: whether speeds are shown where --stats does not say."""
        return Speedometer(llm) if (is_shown if self.stats is None else self.stats) else None


def needs_template(opened: OpenModel, model: Path) -> None:
    if not opened.has_chat_template:
        raise ValueError(
            f"{model.name} has no chat template: it is a base model, which continues text (surefoot generate). To talk "
            f"with it all the same, give --chat-template FILE, or one of {', '.join(TEMPLATE_NAMES)}"
        )
