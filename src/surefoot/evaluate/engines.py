"""Opens a model for its logits: surefoot's own, in integers with any KV form, or in float32."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.formats import FLOAT32, W8_GROUPED
from surefoot.models import Model, load
from surefoot.ops import Backend, KvForm, WeightFormat
from surefoot.ops.arrays import F32
from surefoot.ops.weights import dequantise
from surefoot.runner import SessionRunner, Work
from surefoot.text import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from surefoot.weights import Checkpoint, open_checkpoint

CHUNK = 128  # tokens in a step: with a large vocabulary, the logits of a token take a megabyte


@dataclass(frozen=True)
class RunnerEngine:
    """Runs one window at a time, each in a session."""

    name: str  # in results
    runner: SessionRunner  # runs the model

    def logits(self, window: Sequence[int]) -> Iterator[F32]:
        """The logits of every token, in chunks. A chunk is valid until the next is requested."""
        session = self.runner.open(len(window))
        try:
            for start in range(0, len(window), CHUNK):
                tokens = window[start : start + CHUNK]
                yield self.runner.execute([Work(session, tokens, len(tokens))])
        finally:
            self.runner.close(session)


def integer_engine(backend: Backend, model: Model, form: KvForm, context: int) -> RunnerEngine:
    runner = SessionRunner.make(backend, model, num_tokens=context, max_sessions=1, max_chunk=CHUNK, kv_form=form)
    return RunnerEngine(form_name(form), runner)


def float_engine(backend: Backend, checkpoint: Checkpoint, context: int, name: str = "float32") -> RunnerEngine:
    """An engine with every matrix in float32. Its KV cache has 15 bits: the only difference from a float32 forward
    pass."""
    model = load(backend, checkpoint, FLOAT32)
    runner = SessionRunner.make(
        backend, model, num_tokens=context, max_sessions=1, max_chunk=CHUNK, kv_form=KvForm.TWO_LIMBS, record=False
    )
    return RunnerEngine(name, runner)


def form_name(form: KvForm) -> str:
    return form.name.lower().replace("_", "-")


class DequantisedCheckpoint:
    """A checkpoint whose matrices, except experts, have the values of the kernels' integers. Run in float32, it shows
    the error of re-expressing a file's codes on a grid per row, without that of integer arithmetic."""

    def __init__(self, checkpoint: Checkpoint, float_format: WeightFormat = W8_GROUPED) -> None:
        self._checkpoint = checkpoint
        self._format = float_format
        self.metadata, self.tensors = checkpoint.metadata, checkpoint.tensors
        self.integers, self.fused, self.fused_experts = checkpoint.integers, checkpoint.fused, checkpoint.fused_experts

    def floats(self, name: str) -> F32:
        if len(self.tensors[name].shape) != 2 or "gate_inp" in name:
            return self._checkpoint.floats(name)
        return dequantise(self._checkpoint.integers(name, self._format))


def open_model(path: Path) -> tuple[Checkpoint, Tokenizer]:
    checkpoint = open_checkpoint(path)
    tokenizer = tokenizer_from_folder(path) if path.is_dir() else tokenizer_from_gguf(checkpoint.metadata)
    return checkpoint, tokenizer
