"""Finds the scheme of a quantised checkpoint, and assembles its quantised tensors from their parts."""

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


def collect_quantised(config: Mapping[str, Any], stored: Mapping[str, StoredTensor]) -> dict[str, Stored]:
    """The checkpoint's tensors. Quantised tensors have the names of the weights that they represent."""
    text = config.get("text_config") or {}
    quantisation = next((part[key] for part in (config, text) for key in CONFIG_KEYS if part.get(key)), None)
    if quantisation is None:
        return dict(stored)
    method = quantisation.get("quant_method")
    if method not in SCHEMES:
        raise ValueError(f"checkpoints quantised by {method!r} cannot be read: use {', '.join(SCHEMES)} or GGUF")
    try:
        return {**stored, **SCHEMES[method](quantisation, stored)}
    except KeyError as missing:
        raise SafetensorsError(f"the checkpoint, quantised by {method}, lacks {missing}; fetch it again") from None
    except (TypeError, ValueError, ArithmeticError) as wrong:  # shapes, types or sizes of a quantised tensor's parts
        raise SafetensorsError(f"the checkpoint, quantised by {method}, cannot be read: {wrong}") from None
