"""What a model is, from its files' headers: shown to people before it is loaded."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from surefoot.api.opening import OpenModel
from surefoot.formats import SERVED
from surefoot.models import read_config
from surefoot.ops import Backend
from surefoot.runner import slot_bytes
from surefoot.weights import GgufFile
from surefoot.weights.memory import TypeSizes, sizes_by_type, weight_bytes

FOLDER = "safetensors"
MOST_TYPES = 4  # in a sentence


@dataclass(frozen=True)
class ModelFacts:
    path: str  # of the file or folder
    family: str
    layers: int
    width: int
    vocab_size: int
    context: int  # tokens
    experts: int  # that a token uses; 0: no mixture
    weight_format: str  # types of the file's tensors, by bytes
    weight_types: tuple[TypeSizes, ...]  # of a GGUF file
    weight_bytes: int  # in memory, at least
    kv_bytes: int  # of a token, in all layers
    state_bytes: int  # of a request, for layers that keep states
    licence: str | None  # as the file states it
    has_chat_template: bool
    sampling: dict[str, float]
    sampling_source: str

    @property
    def summary(self) -> str:
        size = f"{self.weight_bytes / 1e9:.2f} GB of weights"
        return f"{self.family}, {self.layers} layers, context {self.context}, {size} ({self.weight_format})"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_rows(self) -> list[tuple[str, str]]:
        """Names and values for people."""
        states = [("state", f"{self.state_bytes / 1e6:.1f} MB a request")] if self.state_bytes else []
        experts = [("experts", f"{self.experts} a token")] if self.experts else []
        return [
            ("file", self.path),
            ("family", f"{self.family}, {self.layers} layers of width {self.width}"),
            *experts,
            ("vocabulary", f"{self.vocab_size} tokens"),
            ("context", f"{self.context} tokens"),
            ("weights", f"{self.weight_bytes / 1e9:.2f} GB in memory, {self.weight_format}"),
            ("KV cache", f"{self.kv_bytes / 1e3:.1f} kB a token"),
            *states,
            ("chat", "has a chat template" if self.has_chat_template else "no chat template: a base model"),
            ("sampling", self.sampling_source),
            ("licence", self.licence or "not stated in the file"),
        ]


def model_facts(opened: OpenModel) -> ModelFacts:
    config, checkpoint = read_config(opened.checkpoint), opened.checkpoint
    types = tuple(sizes_by_type(checkpoint, SERVED)) if isinstance(checkpoint, GgufFile) else ()
    return ModelFacts(
        path=str(opened.path),
        family=config.family,
        layers=len(config.layers),
        width=config.width,
        vocab_size=config.vocab_size,
        context=config.context,
        experts=config.moe.router.top_k if config.moe else 0,
        weight_format=_weight_format(types),
        weight_types=types,
        weight_bytes=sum(sizes.memory_bytes for sizes in types) or weight_bytes(checkpoint, SERVED),
        kv_bytes=sum(slot_bytes(Backend(threads=1), config).values()),
        state_bytes=config.state_bytes,
        licence=opened.checkpoint.metadata.get("general.license"),
        has_chat_template=opened.has_chat_template,
        sampling=opened.sampling.params.settable,
        sampling_source=str(opened.sampling),
    )


def _weight_format(types: Sequence[TypeSizes]) -> str:
    """The types that most of a GGUF file's bytes belong to."""
    total = sum(sizes.file_bytes for sizes in types)
    shares = [f"{sizes.type} {sizes.file_bytes / total:.0%}" for sizes in types if sizes.file_bytes > total / 200]
    more = ["…"] if len(shares) > MOST_TYPES else []
    return ", ".join(shares[:MOST_TYPES] + more) or FOLDER
