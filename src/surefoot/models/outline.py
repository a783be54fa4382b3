"""A model's outline: the model as it will be loaded, with every shape and format, but without weights.

It is built by the code that loads the model, from a checkpoint that knows only its header. What is counted over a
loaded model (bytes, products) is counted over its outline by the same functions, with the same result.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from surefoot import machine
from surefoot.formats import W4_WIDE, W8_GROUPED, round_to
from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.ops.weights import IntegerWeights, PackedForm, PackedWeights, Packing, WeightFormat
from surefoot.weights.checkpoint import Tensor
from surefoot.weights.coded import Coded
from surefoot.weights.gguf import Host, choose_packing, packed_forms, wide_bytes
from surefoot.weights.gguf_header import TensorInfo


class ModelHeader(Protocol):
    """Metadata and tensors' shapes: those of a checkpoint, or of a model that has no file."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...


class OutlineCheckpoint:
    """A checkpoint of which no tensor is read: packed matrices have a size but no bytes, and other values are zeros.
    Those of vectors are ones, since a factor of rotary frequencies may not be 0."""

    def __init__(self, header: ModelHeader, host: Host | None = None) -> None:
        """host: that which will load the model; by default this machine, with the backend's variant."""
        self._host = host
        self.metadata: Mapping[str, Any] = header.metadata
        self.tensors: Mapping[str, Tensor] = header.tensors

    def floats(self, name: str) -> F32:
        shape = self.tensors[name].shape
        return np.ones(shape, np.float32) if len(shape) == 1 else np.zeros(shape, np.float32)

    def integers(self, name: str, float_format: WeightFormat = W8_GROUPED) -> IntegerWeights:
        """For families that take some rows of a matrix."""
        (form,) = self._forms([name], float_format, Packing.WIDE)
        return round_to(form.format, self.floats(name))

    def fused(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[PackedWeights]:
        return [form.outline() for form in self._forms(names, float_format, self._packing(backend))]

    def fused_experts(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[list[PackedWeights]]:
        num_experts = self.tensors[names[0]].shape[0]
        return [[form.outline()] * num_experts for form in self._forms(names, float_format, self._packing(backend))]

    def _packing(self, backend: Backend) -> Packing:
        return choose_packing(self._wide_bytes, self._host or Host(backend.variant, self._memory_bytes))

    @cached_property
    def _memory_bytes(self) -> int:
        return machine.memory().limit_bytes

    @cached_property
    def _wide_bytes(self) -> int:
        return wide_bytes(tensor for tensor in self.tensors.values() if isinstance(tensor, TensorInfo))

    def _forms(self, names: Sequence[str], float_format: WeightFormat, packing: Packing) -> list[PackedForm]:
        infos = [tensor for name in names if isinstance(tensor := self.tensors[name], TensorInfo)]
        if infos:
            return packed_forms(infos, packing, float_format)
        runs = groupby(names, lambda name: self._format(name, float_format))
        return [self._stacked(fmt, list(run)) for fmt, run in runs]

    def _stacked(self, fmt: WeightFormat, names: Sequence[str]) -> PackedForm:
        shapes = [self.tensors[name].shape for name in names]
        return PackedForm(fmt, sum(shape[-2] for shape in shapes), shapes[0][-1])

    def _format(self, name: str, float_format: WeightFormat) -> WeightFormat:
        """Of codes, only their values tell the format that they need: 4 bits is the usual one."""
        return W4_WIDE if isinstance(self.tensors[name], Coded) else float_format
