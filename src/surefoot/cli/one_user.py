"""A model for one user at a terminal: the options that `chat` and `generate` share, and what they ask for."""

from dataclasses import dataclass, replace
from pathlib import Path

import typer

from surefoot.api import LLM, SamplingParams
from surefoot.api.defaults import SETTABLE, parse_sampling
from surefoot.api.opening import OpenModel, open_model
from surefoot.cli import options
from surefoot.cli.progress import loading
from surefoot.cli.status import Speedometer
from surefoot.text import TEMPLATE_NAMES
from surefoot.weights import PackedCache


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
    float_format: options.Format = "w8"
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
