"""The model of a plan: its work, its bytes and its limits, from the header of its file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from surefoot.api.opening import OpenModel, short_name
from surefoot.formats import W4_WIDE, to_format
from surefoot.models import ModelConfig, load, model_work, row_context, weight_bytes
from surefoot.models.outline import OutlineCheckpoint
from surefoot.models.traffic import MatrixUse, ModelWork
from surefoot.ops import Backend, KvForm
from surefoot.ops.measure_rates import AttentionShape, LinearShape
from surefoot.ops.weights import PackedForm
from surefoot.runner import slot_bytes


@dataclass(frozen=True)
class SizedModel:
    """What a plan needs to know of a model."""

    name: str
    config: ModelConfig
    work: ModelWork
    weight_bytes: int  # in memory
    kv_bytes: Mapping[int, int]  # that a token keeps, by window
    row_contexts: Mapping[str, float]  # of the scheduler, by variant

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token in all layers."""
        return sum(self.kv_bytes.values())

    def request_bytes(self, num_tokens: int) -> int:
        """Keys, values and states of a request with that many tokens."""
        kept = sum(size * (min(num_tokens, window) if window else num_tokens) for window, size in self.kv_bytes.items())
        return kept + self.config.state_bytes

    @property
    def linear_shapes(self) -> list[LinearShape]:
        """The matrix that computes most of each form."""
        largest: dict[str, tuple[int, LinearShape]] = {}
        for use in (*self.work.matrices, *self.work.head):
            if use.format is not None:
                shape = LinearShape(use.format, use.limbs, use.n, use.k)
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
        return replace(self, work=work, weight_bytes=self.weight_bytes - saved)


def plan_model(opened: OpenModel, float_format: str = "w8", kv_form: KvForm = KvForm.KEYS_TWO_LIMBS) -> SizedModel:
    """Reads no weight."""
    backend = Backend(threads=1)
    try:
        model = load(backend, OutlineCheckpoint(opened.checkpoint), to_format(float_format)).without_mtp()
        sizes = slot_bytes(backend, model.config, kv_form)
    finally:
        backend.close()
    contexts = {variant: row_context(model, variant) for variant in ("amx", "avx2", "")}
    return SizedModel(
        short_name(opened.path), model.config, model_work(model, sizes), weight_bytes(model), sizes, contexts
    )


def _in_four_bits(use: MatrixUse) -> MatrixUse:
    if use.format is None or use.format.bits <= W4_WIDE.bits:
        return use
    return replace(use, format=W4_WIDE, nbytes=PackedForm(W4_WIDE, use.n, use.k).outline().nbytes)
