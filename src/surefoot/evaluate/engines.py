"""Our own ways to a model's logits: in integers with one of the KV forms, and in float32."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from surefoot.formats import FLOAT32, W8_GROUPED
from surefoot.models import Model, load
from surefoot.ops import Backend, KvForm, WeightFormat
from surefoot.ops.arrays import F32
from surefoot.ops.oracle.linear import dequantise
from surefoot.runner import Runner, Work
from surefoot.weights import Checkpoint

CHUNK = 128  # tokens of a step: logits of wide vocabularies take a megabyte each


@dataclass(frozen=True)
class RunnerEngine:
    """One window after the other, each in a request of its own."""

    name: str
    runner: Runner

    def logits(self, window: Sequence[int]) -> Iterator[F32]:
        """Of every token, in chunks; a chunk stays until the next is asked for."""
        request = self.runner.open(len(window))
        try:
            for start in range(0, len(window), CHUNK):
                tokens = window[start : start + CHUNK]
                yield self.runner.execute([Work(request, tokens, len(tokens))])
        finally:
            self.runner.close(request)


def integer_engine(backend: Backend, model: Model, form: KvForm, context: int) -> RunnerEngine:
    runner = Runner(backend, model, num_tokens=context, max_requests=1, max_chunk=CHUNK, kv_form=form)
    return RunnerEngine(form_name(form), runner)


def float_engine(backend: Backend, checkpoint: Checkpoint, context: int, name: str = "float32") -> RunnerEngine:
    """Every matrix in float32. Its KV has 15 bits, which is all that it differs by from a float32 forward."""
    model = load(backend, checkpoint, FLOAT32)
    runner = Runner(
        backend, model, num_tokens=context, max_requests=1, max_chunk=CHUNK, kv_form=KvForm.TWO_LIMBS, record=False
    )
    return RunnerEngine(name, runner)


def form_name(form: KvForm) -> str:
    return form.name.lower().replace("_", "-")


class ReExpressed:
    """A checkpoint whose matrices (experts apart) are what the kernels' integers stand for. In float32 it shows what
    putting a file's codes on a row's grid costs, apart from the arithmetic."""

    def __init__(self, checkpoint: Checkpoint, float_format: WeightFormat = W8_GROUPED) -> None:
        self._checkpoint = checkpoint
        self._format = float_format
        self.metadata, self.tensors = checkpoint.metadata, checkpoint.tensors
        self.integers, self.fused, self.fused_experts = checkpoint.integers, checkpoint.fused, checkpoint.fused_experts

    def floats(self, name: str) -> F32:
        if len(self.tensors[name].shape) != 2 or "gate_inp" in name:
            return self._checkpoint.floats(name)
        return dequantise(self._checkpoint.integers(name, self._format))
