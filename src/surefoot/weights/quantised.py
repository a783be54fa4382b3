"""Which scheme a quantised checkpoint is in, and its tensors with codes put together from their parts."""

from collections.abc import Callable, Mapping
from typing import Any

from surefoot.weights import awq, compressed_tensors, fp8, gptq
from surefoot.weights.derived import Stored
from surefoot.weights.safetensors import SafetensorsError, StoredTensor

Collect = Callable[[Mapping[str, Any], Mapping[str, StoredTensor]], Mapping[str, Stored]]

CONFIG_KEYS = ("quantization_config", "compression_config")
SCHEMES: dict[str, Collect] = {
    "awq": awq.collect,
    "compressed-tensors": compressed_tensors.collect,
    "fp8": fp8.collect,
    "fbgemm_fp8": fp8.collect,
    "gptq": gptq.collect,
}


def collect_coded(config: Mapping[str, Any], stored: Mapping[str, StoredTensor]) -> dict[str, Stored]:
    """The checkpoint's tensors, those in codes under the names of the weights that they stand for."""
    text = config.get("text_config") or {}
    given = next((one[key] for one in (config, text) for key in CONFIG_KEYS if one.get(key)), None)
    if given is None:
        return dict(stored)
    method = given.get("quant_method")
    if method not in SCHEMES:
        raise ValueError(f"checkpoints quantised by {method!r} are not read: {', '.join(SCHEMES)} are, and GGUF")
    try:
        return {**stored, **SCHEMES[method](given, stored)}
    except KeyError as lacking:
        raise SafetensorsError(f"the checkpoint, quantised by {method}, lacks {lacking}; fetch it again") from None
    except (TypeError, ValueError, ArithmeticError) as wrong:  # shapes, types or sizes of the codes' parts
        raise SafetensorsError(f"the checkpoint, quantised by {method}, cannot be read: {wrong}") from None
