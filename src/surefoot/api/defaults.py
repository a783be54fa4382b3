"""Default sampling parameters: those that the model's files recommend, or else surefoot's own.

A Hugging Face folder has them in generation_config.json, a GGUF file in its general.sampling keys. A parameter that
such a file leaves out is off. An invalid value is ignored and reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from surefoot.core import SamplingParams
from surefoot.core.request import SETTABLE

# Small models ramble at temperature 1 without truncation.
OWN = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
CALLING_TEMPERATURE = 0.2  # of our own defaults, where the model may call tools: a call is right or wrong
WHOLE = ("top_k",)
GGUF_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
FOLDER_KEYS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


@dataclass(frozen=True)
class SamplingDefaults:
    params: SamplingParams
    source: str  # where the parameters come from, in words
    ignored: tuple[str, ...] = ()  # values that could not be used, and why

    def changed(self, chosen: Mapping[str, Any]) -> "SamplingDefaults":
        """The defaults with some values replaced. Raises ValueError for an invalid value."""
        if not chosen:
            return self
        values = {name: _number(name, value) for name, value in chosen.items()}
        return replace(self, params=replace(self.params, **values), source=f"{self.source}, changed")

    def __str__(self) -> str:
        return f"{describe(self.params)} ({self.source})"


def for_calls(params: SamplingParams) -> SamplingParams:
    """The defaults where the model may call tools. Values of the model's files or of the operator stay."""
    return replace(params, temperature=CALLING_TEMPERATURE) if params == OWN else params


def describe(params: SamplingParams) -> str:
    """The parameters that are not off, in words."""
    if params.is_greedy:
        return "greedy"
    off = SamplingParams()
    shown = [name for name in SETTABLE if name == "temperature" or getattr(params, name) != getattr(off, name)]
    return ", ".join(f"{name} {getattr(params, name):g}" for name in shown)


def from_gguf(metadata: Mapping[str, Any]) -> SamplingDefaults:
    stated = {name: metadata[key] for name, key in GGUF_KEYS.items() if key in metadata}
    return _advised(stated, "as the model's file advises")


def from_generation_config(config: Mapping[str, Any]) -> SamplingDefaults:
    """`do_sample: false` means greedy decoding, whatever the other values are."""
    stated = {name: config[name] for name in FOLDER_KEYS if config.get(name) is not None}
    if config.get("do_sample") is False:
        stated |= {"temperature": 0.0}
    return _advised(stated, "as the model's generation_config.json advises")


def parse_sampling(words: Sequence[str]) -> dict[str, Any]:
    """Values of words such as temperature=0.2."""
    values: dict[str, Any] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator:
            raise ValueError(f"--sampling takes KEY=VALUE, not {word!r}")
        try:
            values |= _checked(name, float(value))
        except ValueError as error:
            raise ValueError(f"--sampling {word}: {error}") from None
    return values


def _advised(stated: Mapping[str, Any], source: str) -> SamplingDefaults:
    usable, ignored = dict[str, Any](), list[str]()
    for name, value in stated.items():
        try:
            usable |= _checked(name, value)
        except ValueError as error:
            ignored.append(f"{error}: the model's value is ignored")
    if not usable:
        return SamplingDefaults(OWN, "surefoot's own, since the model advises none", tuple(ignored))
    return SamplingDefaults(SamplingParams(**usable), source, tuple(ignored))


def _checked(name: str, value: Any) -> dict[str, Any]:
    number = {name: _number(name, value)}
    SamplingParams(**number)
    return number


def _number(name: str, value: Any) -> Any:
    """The value of a parameter. A whole number may be written 40.0; a top_k of -1 means all tokens."""
    if name not in SETTABLE:
        raise ValueError(f"there is no sampling parameter {name!r}: choose one of {', '.join(SETTABLE)}")
    if name in WHOLE and isinstance(value, float) and value.is_integer():
        value = int(value)
    return 0 if name in WHOLE and value == -1 else value
