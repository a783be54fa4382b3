"""A model's outline: the model as it will be loaded, with every shape and format, but without weights.

It is built by the code that loads the model, from a checkpoint that knows only its header. What is counted over a
loaded model (bytes, products) is counted over its outline by the same functions, with the same result.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from surefoot.formats import W4_WIDE, W8_GROUPED, round_to
from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.ops.weights import IntegerWeights, PackedForm, PackedWeights, WeightFormat
from surefoot.weights import Checkpoint, GgufFile
from surefoot.weights.checkpoint import Tensor
from surefoot.weights.coded import Coded


class OutlineCheckpoint:
    """A checkpoint of which no tensor is read: values are zeros, and packed matrices have a size but no bytes."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.metadata: Mapping[str, Any] = checkpoint.metadata
        self.tensors: Mapping[str, Tensor] = checkpoint.tensors

    def floats(self, name: str) -> F32:
        return np.zeros(self.tensors[name].shape, np.float32)

    def integers(self, name: str, float_format: WeightFormat = W8_GROUPED) -> IntegerWeights:
        """For families that take some rows of a matrix."""
        (form,) = self._forms([name], float_format)
        return round_to(form.format, self.floats(name))

    def fused(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[PackedWeights]:
        return [form.outline() for form in self._forms(names, float_format)]

    def fused_experts(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[list[PackedWeights]]:
        num_experts = self.tensors[names[0]].shape[0]
        return [[form.outline()] * num_experts for form in self._forms(names, float_format)]

    def _forms(self, names: Sequence[str], float_format: WeightFormat) -> list[PackedForm]:
        if isinstance(self._checkpoint, GgufFile):
            return self._checkpoint.packed_forms(names, float_format)
        runs = groupby(names, lambda name: self._format(name, float_format))
        return [self._stacked(fmt, list(run)) for fmt, run in runs]

    def _stacked(self, fmt: WeightFormat, names: Sequence[str]) -> PackedForm:
        shapes = [self.tensors[name].shape for name in names]
        return PackedForm(fmt, sum(shape[-2] for shape in shapes), shapes[0][-1])

    def _format(self, name: str, float_format: WeightFormat) -> WeightFormat:
        """Of codes, only their values tell the format that they need: 4 bits is the usual one."""
        return W4_WIDE if isinstance(self.tensors[name], Coded) else float_format
