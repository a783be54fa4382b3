"""Recommended models by short name, such as qwen3:4b. The list is data: recommended.toml."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class RecommendedModel:
    name: str  # family:size
    source: str  # Hugging Face id
    bytes: int  # to fetch, and roughly what the weights take in memory
    licence: str
    purpose: str
    ran: str = ""  # SHA-256 of a published file of this model that was run; empty: only tiny models of its shape were


@cache
def recommended_models() -> tuple[RecommendedModel, ...]:
    text = files("surefoot.weights").joinpath("recommended.toml").read_text()
    return tuple(RecommendedModel(**entry) for entry in tomllib.loads(text)["model"])


def resolve_name(name: str) -> str | None:
    """The Hugging Face id behind a short name; None if the name is not in the list. A name without a size means the
    first of its family."""
    for model in recommended_models():
        if name.lower() in (model.name, model.name.partition(":")[0]):
            return model.source
    return None
