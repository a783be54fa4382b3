"""Quantised Hugging Face checkpoints: the weights that they represent, and the error of the kernels' integers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.ops import TWO_LIMBS, Backend, linear, quantise
from surefoot.ops.arrays import F32
from surefoot.ops.weights import dequantise
from surefoot.weights import HuggingFaceCheckpoint, SafetensorsError
from tests.weights import safetensors_files, schemes
from tests.weights.schemes import SCHEMES, Scheme, Written

NAME, FULL_NAME = "blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj"
each_scheme = pytest.mark.parametrize("name", list(SCHEMES))


def weights(n: int = 64, k: int = 256) -> F32:
    """Normal weights, with rows of different magnitude and a few outliers."""
    rng = np.random.default_rng(n + k)
    values = rng.standard_normal((n, k)) * np.exp(rng.standard_normal((n, 1)))
    values[rng.random((n, k)) < 0.01] *= 6
    return values.astype(np.float32)


def checkpoint(folder: Path, scheme: Scheme, written: Mapping[str, Written]) -> HuggingFaceCheckpoint:
    config = {"model_type": "llama", "quantization_config": scheme.config}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {f"{name}.{part}": values for name, matrix in written.items() for part, values in matrix.parts.items()}
    fp8 = frozenset(f"{name}.{part}" for name, matrix in written.items() for part in matrix.fp8)
    safetensors_files.write(folder / "model.safetensors", tensors, fp8)
    return HuggingFaceCheckpoint.open(folder)


@each_scheme
def test_weights_are_dequantised_exactly(tmp_path: Path, name: str) -> None:
    scheme = SCHEMES[name]
    written = scheme.write(weights())
    read = checkpoint(tmp_path, scheme, {FULL_NAME: written})
    assert list(read.tensors) == [NAME]
    assert read.tensors[NAME].shape == (64, 256)
    assert np.array_equal(read.floats(NAME), written.weights)


def largest_error(scheme: Scheme, values: F32) -> F32:
    """The largest error of each weight. Kept codes have the error of the row's grid, in units of 1/16256 of the largest
    weight that the row could encode: half a unit for an offset; and half a unit for the multiplier times the largest
    value of up to 4 bits, or else half for the multiplier and half for the product. Rounded codes also have the error
    of 8 bits in their groups."""
    row = np.abs(values).max(axis=1, keepdims=True)
    units = 2 ** (scheme.bits - 1) / 2 + 0.5 if scheme.exact and scheme.bits <= 4 else 1.5
    grid = units / 16256 * row * (4 / 3)  # 2-bit codes could encode weights a third larger than the row's
    if scheme.exact:
        return np.broadcast_to(grid, values.shape)
    if scheme.row_scale:
        return np.broadcast_to(grid + row / 120, values.shape)
    return grid + np.abs(values).reshape(len(values), -1, 32).max(axis=2).repeat(32, axis=1) / 120


def check_product(scheme: Scheme, got: F32, x: F32, values: F32) -> None:
    """Asserts that the error is at most the sum of the weights' errors and of 15-bit rounding of x."""
    of_weights = np.abs(x) @ largest_error(scheme, values).T
    of_x = np.abs(x).max(axis=1, keepdims=True) / 16256 * np.abs(values).sum(axis=1)
    assert (np.abs(got - x @ values.T) <= of_weights + of_x).all()


@each_scheme
def test_integers_are_the_weights(tmp_path: Path, name: str) -> None:
    written = SCHEMES[name].write(weights())
    integers = checkpoint(tmp_path, SCHEMES[name], {FULL_NAME: written}).integers(NAME)
    assert (np.abs(dequantise(integers) - written.weights) <= largest_error(SCHEMES[name], written.weights)).all()


@pytest.mark.parametrize("name", ["fp8 tensor", "fp8 rows"])
def test_fp8_is_kept_where_it_is_large(tmp_path: Path, name: str) -> None:
    """Weights down to an eighth of the group's largest power of two are exact, in rows whose groups are within 2^7 of
    each other."""
    scheme = SCHEMES[name]
    written = scheme.write(weights())
    got = dequantise(checkpoint(tmp_path, scheme, {FULL_NAME: written}).integers(NAME))
    scale = np.abs(written.weights).max() / 448 if name == "fp8 tensor" else None
    values = np.abs(written.weights / (scale or (np.abs(written.weights).max(axis=1, keepdims=True) / 448)))
    top = 2.0 ** np.floor(np.log2(values.reshape(64, -1, 32).max(axis=2) * 1.0001)).repeat(32, axis=1)
    row_top = top.max(axis=1, keepdims=True)
    kept = (values >= top / 8 * 0.9999) & (top >= row_top / 64)
    assert kept.mean() > 0.5
    assert np.allclose(got[kept], written.weights[kept], rtol=2e-6, atol=0)


def test_int8_is_kept_to_the_last_code(tmp_path: Path) -> None:
    written = SCHEMES["w8a8"].write(weights())
    assert (written.parts["weight"] == -128).any()
    integers = checkpoint(tmp_path, SCHEMES["w8a8"], {FULL_NAME: written}).integers(NAME)
    assert np.allclose(dequantise(integers), written.weights, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["w8a16 packed", "w8a16 groups"])
def test_few_codes_of_int8_groups_are_lost(tmp_path: Path, name: str) -> None:
    """Only groups with both -128 and 127 lose codes."""
    written = SCHEMES[name].write(weights())
    integers = checkpoint(tmp_path, SCHEMES[name], {FULL_NAME: written}).integers(NAME)
    error = np.abs(dequantise(integers) - written.weights) / np.abs(written.weights).max(axis=1, keepdims=True)
    assert (error > 2 / 16256).mean() < 0.0005


def test_int8_without_its_lowest_code_takes_one_limb(tmp_path: Path) -> None:
    written = SCHEMES["w8a8 per tensor"].write(weights())
    integers = checkpoint(tmp_path, SCHEMES["w8a8 per tensor"], {FULL_NAME: written}).integers(NAME)
    assert (integers.format.bits, integers.format.limbs) == (8, 1)
    assert np.array_equal(integers.codes, written.parts["weight"])


@pytest.mark.parametrize("group", [64, 128, 256])
def test_wider_groups(tmp_path: Path, group: int) -> None:
    scheme = schemes.awq(group)
    written = scheme.write(weights())
    integers = checkpoint(tmp_path, scheme, {FULL_NAME: written}).integers(NAME)
    assert integers.format.group == group
    error = np.abs(dequantise(integers) - written.weights) / np.abs(written.weights).max(axis=1, keepdims=True)
    assert error.max() <= 4.51 / 16256  # 8 / 2 for the scale, 1 / 2 for the offset


@each_scheme
def test_packed_and_multiplied(tmp_path: Path, name: str) -> None:
    """Products with fused gate and up matrices are correct."""
    scheme, backend = SCHEMES[name], Backend(threads=1)
    names = {
        f"model.layers.0.mlp.{part}_proj": scheme.write(weights(32 + 8 * i)) for i, part in enumerate(("gate", "up"))
    }
    read = checkpoint(tmp_path, scheme, names)
    x = np.random.default_rng(1).standard_normal((3, 256)).astype(np.float32)
    packed = read.fused(backend, ["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"])
    got = np.concatenate([linear(backend, quantise(backend, x, TWO_LIMBS), matrix) for matrix in packed], axis=1)
    check_product(scheme, got, x, np.concatenate([written.weights for written in names.values()]))


@each_scheme
def test_experts(tmp_path: Path, name: str) -> None:
    """Experts share a format, although only some have the code -128 or zeros other than the middle code."""
    scheme, backend = SCHEMES[name], Backend(threads=1)
    matrices = [weights(32, 128), -np.abs(weights(32, 160)[:, :128]), np.abs(weights(32, 192)[:, :128])]
    names = {f"model.layers.0.mlp.experts.{e}.down_proj": scheme.write(values) for e, values in enumerate(matrices)}
    read = checkpoint(tmp_path, scheme, names)
    runs = read.fused_experts(backend, ["blk.0.ffn_down_exps.weight"])
    assert [len(run) for run in runs] == [3]
    assert len({(packed.format, packed.nbytes) for packed in runs[0]}) == 1
    x = np.random.default_rng(1).standard_normal((3, 128)).astype(np.float32)
    for packed, written in zip(runs[0], names.values(), strict=True):
        check_product(scheme, linear(backend, quantise(backend, x, TWO_LIMBS), packed), x, written.weights)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"quant_method": "awq", "version": "gemv"}, "gemv"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
    ],
)
def test_unknown_schemes_are_refused(tmp_path: Path, config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        checkpoint(tmp_path, Scheme(config, SCHEMES["awq"].write), {FULL_NAME: SCHEMES["awq"].write(weights())})


@pytest.mark.parametrize("lacking", ["qzeros", "scales"])
def test_missing_parts_are_named(tmp_path: Path, lacking: str) -> None:
    written = SCHEMES["gptq v1"].write(weights())
    del written.parts[lacking]
    with pytest.raises(SafetensorsError, match=lacking):
        checkpoint(tmp_path, SCHEMES["gptq v1"], {FULL_NAME: written}).integers(NAME)


def test_three_bits_are_refused(tmp_path: Path) -> None:
    written = SCHEMES["gptq v1"].write(weights())
    scheme = Scheme({**SCHEMES["gptq v1"].config, "bits": 3}, SCHEMES["gptq v1"].write)
    with pytest.raises(ValueError, match=r"3 bits|groups"):
        checkpoint(tmp_path, scheme, {FULL_NAME: written}).integers(NAME)


def test_words_are_compressed_tensors_own() -> None:
    """Our packing of codes and zeros equals the library's."""
    packing = pytest.importorskip(
        "compressed_tensors.compressors.pack_quantized.helpers", reason="compressed-tensors is not installed"
    )
    torch = pytest.importorskip("torch", reason="torch is not installed")
    codes = np.random.default_rng(0).integers(0, 16, (24, 40))
    signed = torch.tensor(codes - 8, dtype=torch.int8)
    for axis in (0, 1):
        want = packing.pack_to_int32(signed, 4, packed_dim=axis).numpy()
        assert np.array_equal(schemes.pack_words(codes, 4, axis), want)
