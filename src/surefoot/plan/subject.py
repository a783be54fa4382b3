"""The model of a plan: its work, its bytes and its limits, from the header of its file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from surefoot.api.opening import OpenModel, chosen_format, open_model, short_name
from surefoot.formats import AUTO_FORMAT, W4_WIDE, to_format
from surefoot.models import ModelConfig, load
from surefoot.models.outline import ModelHeader, OutlineCheckpoint
from surefoot.ops import Backend, KvForm
from surefoot.ops.weights import PackedForm
from surefoot.plan.shapes import find_shape
from surefoot.runner import slot_bytes
from surefoot.speed import model_work, weight_bytes
from surefoot.speed.measure_rates import AttentionShape, LinearShape
from surefoot.speed.traffic import MatrixUse, ModelWork
from surefoot.weights import find_headers
from surefoot.weights.gguf import Host
from surefoot.weights.memory import bytes_of_a_token


@dataclass(frozen=True)
class SizedModel:
    """What a plan needs to know of a model."""

    name: str
    config: ModelConfig
    work: ModelWork
    weight_bytes: int  # in memory
    kv_bytes: Mapping[int, int]  # that a token keeps, by window
    file_bytes: int | None  # of its GGUF file, that a token needs; None: no such file, or one of floats

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token in all layers."""
        return sum(self.kv_bytes.values())

    def request_bytes(self, num_tokens: int) -> int:
        """Keys, values and states of a request with that many tokens."""
        kept = sum(size * (min(num_tokens, window) if window else num_tokens) for window, size in self.kv_bytes.items())
        return kept + self.config.state_bytes

    def activation_bytes(self, num_rows: int) -> int:
        """Inputs and outputs of a step's matrices. All layers use the same arrays in turn."""
        row = {
            (use.n, use.k): use.top_k * (4 * use.n + (use.limbs + 4 * (use.num_experts > 1)) * use.k)
            for use in self.work.matrices
        }
        return num_rows * sum(row.values())

    @property
    def linear_shapes(self) -> list[LinearShape]:
        """The matrix that computes most of each form. Narrow ones are measured wide: random weights are not packed
        otherwise, and forms are named alike."""
        largest: dict[str, tuple[int, LinearShape]] = {}
        for use in (*self.work.matrices, *self.work.head):
            if use.format is not None:
                shape = LinearShape(use.format.wide, use.limbs, use.n, use.k)
                largest[shape.name] = max(
                    largest.get(shape.name, (0, shape)), (use.products, shape), key=lambda pair: pair[0]
                )
        return [shape for _, shape in largest.values()]

    @property
    def attention_shape(self) -> AttentionShape:
        kv = self.config.kv(self.config.attention_layers[0])
        return AttentionShape(self.config.heads, kv.heads, kv.key_dim, kv.value_dim)

    def in_four_bits(self) -> "SizedModel":
        """The same model with every wider matrix in 4 bits."""
        matrices, head = (tuple(map(_in_four_bits, uses)) for uses in (self.work.matrices, self.work.head))
        saved = sum(
            use.count * use.num_experts * (use.nbytes - narrow.nbytes)
            for use, narrow in zip((*self.work.matrices, *self.work.head), (*matrices, *head), strict=True)
        )
        work = replace(self.work, matrices=matrices, head=head)
        return replace(self, work=work, weight_bytes=self.weight_bytes - saved, file_bytes=None)


@dataclass(frozen=True)
class Subject:
    """A model before it is known which machine loads it, on which its size depends."""

    name: str
    header: ModelHeader
    float_format: str

    def on(self, host: Host) -> SizedModel:
        return size_model(self.name, self.header, self.float_format, host=host)


def find_subject(name: str, float_format: str = AUTO_FORMAT) -> Subject:
    """name: a file, a folder, a shape's name with or without a format, or a hub id, of which only headers are
    fetched."""
    if not Path(name).exists() and (named := find_shape(name)):
        return Subject(named.header.name, named.header, named.float_format or float_format)
    with TemporaryDirectory(prefix="surefoot-plan-") as folder:
        opened = open_model(find_headers(name, Path(folder)))
        return Subject(short_name(opened.path), opened.checkpoint, float_format)


def plan_model(
    opened: OpenModel, float_format: str = AUTO_FORMAT, kv_form: KvForm = KvForm.KEYS_TWO_LIMBS
) -> SizedModel:
    """Reads no weight."""
    return size_model(short_name(opened.path), opened.checkpoint, float_format, kv_form)


def size_model(
    name: str,
    header: ModelHeader,
    float_format: str = AUTO_FORMAT,
    kv_form: KvForm = KvForm.KEYS_TWO_LIMBS,
    host: Host | None = None,
) -> SizedModel:
    """host: the machine that loads the model, if it is another."""
    backend = Backend(threads=1)
    try:
        fmt = to_format(chosen_format(float_format, header.metadata))
        model = load(backend, OutlineCheckpoint(header, host), fmt).without_drafting()
        sizes = slot_bytes(backend, model.config, kv_form)
    finally:
        backend.close()
    num_experts = model.config.moe.router.top_k if model.config.moe else 0
    file_bytes = bytes_of_a_token(header.tensors, num_experts)
    return SizedModel(name, model.config, model_work(model, sizes), weight_bytes(model), sizes, file_bytes)


def _in_four_bits(use: MatrixUse) -> MatrixUse:
    if use.format is None or use.format.bits <= W4_WIDE.bits:
        return use
    return replace(use, format=W4_WIDE, nbytes=PackedForm(W4_WIDE, use.n, use.k).outline().nbytes)
