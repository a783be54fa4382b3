import math
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from surefoot.formats import SERVED, W8, W8_GROUPED, round_to
from surefoot.ops import Backend, embed, pack
from surefoot.ops.backend import supported_variants
from surefoot.ops.weights import dequantise
from surefoot.weights import GgufError, GgufFile
from surefoot.weights import gguf as reader
from surefoot.weights.memory import weight_bytes
from tests.weights.gguf_files import TYPES, weights, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "model.gguf")


def test_metadata(path: Path) -> None:
    metadata = GgufFile(path).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["general.name"] == "a test é"
    assert metadata["llama.block_count"] == 2
    assert metadata["llama.rope.freq_base"] == 10000.0
    assert metadata["tokenizer.ggml.add_bos_token"] is True
    tokens = metadata["tokenizer.ggml.tokens"]
    assert list(tokens) == ["<s>", "hello", "", "wörld", "😀"]
    assert (len(tokens), tokens[3], tokens[-1], tokens[1:3]) == (5, "wörld", "😀", ["hello", ""])
    assert metadata["tokenizer.ggml.scores"].tolist() == [0.0, -1.0, -2.5, 3.0, 1.0]
    assert metadata["llama.flags"].tolist() == [True, False, True]


def test_tensors(path: Path) -> None:
    file = GgufFile(path)
    assert {name: info.type.name for name, info in file.tensors.items()} == {**TYPES, "experts.weight": "Q4_1"}
    assert file.tensors["a.weight"].shape == (6, 64)
    assert file.tensors["a.weight"].nbytes == 6 * 2 * 18
    assert np.array_equal(file.floats("norm.weight"), weights("norm.weight"))
    assert np.array_equal(file.floats("c.weight"), weights("c.weight").astype(np.float16))


@pytest.mark.parametrize(("name", "units"), [("a.weight", 4.01), ("b.weight", 1.1)])  # Q4_0: 8 / 2
def test_integers_are_the_files_weights(path: Path, name: str, units: float) -> None:
    file = GgufFile(path)
    floats = file.floats(name)
    assert np.abs(floats - weights(name)).max() < 0.5
    error = np.abs(dequantise(file.integers(name)) - floats) / np.abs(floats).max(axis=1, keepdims=True)
    assert error.max() <= units / 16256


@pytest.mark.parametrize("fmt", [W8, W8_GROUPED])
def test_float_matrices_are_rounded(path: Path, fmt: object) -> None:
    got, want = GgufFile(path).integers("d.weight", fmt), round_to(fmt, GgufFile(path).floats("d.weight"))  # type: ignore[arg-type]
    assert got.format == fmt
    assert np.array_equal(got.codes, want.codes)


def test_experts_are_one_matrix_each(path: Path) -> None:
    file = GgufFile(path)
    floats, experts = file.floats("experts.weight"), file.experts("experts.weight")
    assert len(experts) == 3
    for want, got in zip(floats, experts, strict=True):
        assert (
            np.abs(dequantise(got) - want).max() <= np.abs(want).max() * 4.51 / 16256
        )  # Q4_1: 8 / 2 for the scale, 1 / 2 for the offset


@pytest.mark.parametrize(("shape", "scales"), [((32, 64), [0.5]), ((3, 32, 64), [0.5, 2.0, 0.25])])
def test_an_nvfp4_matrix_is_multiplied_by_its_own_scale(
    tmp_path: Path, shape: tuple[int, ...], scales: list[float]
) -> None:
    """Powers of two, so that every way gives the same bits."""
    rng, kind = np.random.default_rng(1), gguf.GGMLQuantizationType.NVFP4
    raw = rng.integers(0, 120, (math.prod(shape) // 64, 36), np.uint8).reshape(*shape[:-1], -1)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    for name in ("a", "plain"):
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=kind)
    writer.add_tensor("a.scale", np.array(scales, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file, backend = GgufFile(tmp_path / "a.gguf"), Backend("portable", 1)
    factors = np.array(scales, np.float32).reshape(-1, 1, 1)
    want = file.floats("plain.weight").reshape(len(scales), 32, 64) * factors
    assert np.array_equal(file.floats("a.weight").reshape(want.shape), want)
    if len(shape) == 2:
        integers, packed = [file.integers("a.weight")], [file.fused(backend, ["a.weight"])[0]]
    else:
        integers, packed = file.experts("a.weight"), file.fused_experts(backend, ["a.weight"])[0]
    for matrix, in_parts, floats in zip(integers, packed, want, strict=True):
        assert np.abs(dequantise(matrix) - floats).max() <= 7 * np.abs(floats).max() / 16256
        assert np.array_equal(pack(backend, matrix).data, in_parts.data)


def write_matrix(path: Path, kind: str) -> Path:
    """64 rows of two blocks of this type."""
    ggml_type, rng = gguf.GGMLQuantizationType[kind], np.random.default_rng(3)
    raw = rng.integers(0, 64, (64, 2 * gguf.GGML_QUANT_SIZES[ggml_type][1]), np.uint8)  # no scale that is not finite
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("a.weight", raw, raw_dtype=ggml_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("kind", "bits"), [("Q4_K", 0), ("Q5_K", 5), ("Q6_K", 6)])
def test_codes_stay_at_the_files_width_where_a_variant_makes_them_in_registers(
    tmp_path: Path, kind: str, bits: int
) -> None:
    path = write_matrix(tmp_path / "a.gguf", kind)
    for variant in supported_variants():
        packed = GgufFile(path).fused(Backend(variant, 1), ["a.weight"])[0]
        assert packed.format.narrow_bits == (bits if variant == "avx512" else 0)
        assert packed.format.scale_bits == 16


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_weights_that_would_take_most_of_the_memory_are_packed_at_the_files_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = write_matrix(tmp_path / "a.gguf", kind)
    backend, every_row = Backend(threads=1), np.arange(64)
    wide_file = GgufFile(path)
    wide, size = wide_file.fused(backend, ["a.weight"])[0], weight_bytes(wide_file, SERVED)
    monkeypatch.setattr("surefoot.weights.gguf.MAX_WIDE_SHARE", 0)
    narrow_file = GgufFile(path)
    narrow = narrow_file.fused(backend, ["a.weight"])[0]
    assert narrow.nbytes < wide.nbytes
    assert (size, weight_bytes(narrow_file, SERVED)) == (wide.nbytes, narrow.nbytes), "known before it is read"
    assert np.array_equal(embed(backend, every_row, narrow), embed(backend, every_row, wide)), "the same weights"


def test_wrong_names_and_shapes(path: Path) -> None:
    file = GgufFile(path)
    with pytest.raises(GgufError, match="no tensor z"):
        file.floats("z")
    with pytest.raises(GgufError, match="2 dimensions"):
        file.integers("experts.weight")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_shards(tmp_path: Path, number: int) -> None:
    write(tmp_path / "model.gguf", split=2)
    whole = GgufFile(write(tmp_path / "whole.gguf"))
    file = GgufFile(tmp_path / f"model-{number:05}-of-00003.gguf")
    assert file.tensors.keys() == whole.tensors.keys()
    assert file.metadata["llama.block_count"] == 2
    for name in whole.tensors:
        assert np.array_equal(file.floats(name), whole.floats(name))


def test_a_missing_shard(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", split=2)
    (tmp_path / "model-00002-of-00003.gguf").unlink()
    with pytest.raises(GgufError, match=r"00002-of-00003.*missing"):
        GgufFile(tmp_path / "model-00001-of-00003.gguf")


def test_shards_in_the_wrong_order(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", split=2)
    (tmp_path / "model-00002-of-00003.gguf").write_bytes((tmp_path / "model-00003-of-00003.gguf").read_bytes())
    with pytest.raises(GgufError, match="unlike its name"):
        GgufFile(tmp_path / "model-00001-of-00003.gguf")


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def header(
    pairs: bytes = b"", tensors: bytes = b"", *, num_pairs: int = 0, num_tensors: int = 0, version: int = 3
) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", version, num_tensors, num_pairs) + pairs + tensors


def entry(name: bytes = b"t", shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


HUGE = 2**62
WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "short": (b"GGUF", "cut short"),
    "not gguf": (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
    "version": (header(version=1), "version 1"),
    "big-endian": (header(version=3 << 24), "big-endian"),
    "many pairs": (header(num_pairs=HUGE), "cut short"),
    "many tensors": (header(num_tensors=HUGE), "cut short"),
    "long key": (header(struct.pack("<Q", HUGE) + bytes(40), num_pairs=1), "cut short"),
    "long string": (header(string(b"k") + struct.pack("<IQ", 8, HUGE) + bytes(9), num_pairs=1), "k at byte"),
    "long array": (header(string(b"k") + struct.pack("<IIQ", 9, 4, HUGE), num_pairs=1), "k at byte"),
    "many strings": (header(string(b"k") + struct.pack("<IIQ", 9, 8, HUGE), num_pairs=1), "k at byte"),
    "strings": (header(string(b"k") + struct.pack("<IIQQQ", 9, 8, 2, 7, 7), num_pairs=1), "string 1 of 2"),
    "nested array": (header(string(b"k") + struct.pack("<IIQ", 9, 9, 0), num_pairs=1), "array of arrays"),
    "value type": (header(string(b"k") + struct.pack("<II", 13, 0), num_pairs=1), "type 13"),
    "twice": (header(2 * (string(b"k") + struct.pack("<II", 4, 0)), num_pairs=2), "occurs twice"),
    "utf-8": (header(string(b"\xff") + struct.pack("<II", 4, 0), num_pairs=1), "UTF-8"),
    "alignment": (header(string(b"general.alignment") + struct.pack("<II", 4, 3), num_pairs=1), "power of two"),
    "no dimensions": (header(tensors=entry(shape=()) + bytes(99), num_tensors=1), "0 dimensions"),
    "dimensions": (header(tensors=entry(shape=(1,) * 5) + bytes(99), num_tensors=1), "5 dimensions"),
    "zero": (header(tensors=entry(shape=(32, 0)) + bytes(99), num_tensors=1), "shape"),
    "ragged": (header(tensors=entry(shape=(31,), kind=2) + bytes(99), num_tensors=1), "blocks of 32"),
    "type": (header(tensors=entry(kind=99) + bytes(999), num_tensors=1), "type 99"),
    "big tensor": (header(tensors=entry(shape=(2**40, 2**40)) + bytes(999), num_tensors=1), "cut short"),
    "far tensor": (header(tensors=entry(offset=HUGE) + bytes(999), num_tensors=1), "cut short"),
    "misaligned": (header(tensors=entry(offset=1) + bytes(999), num_tensors=1), "aligned"),
    "overlap": (header(tensors=entry() + entry(b"u", offset=96) + bytes(999), num_tensors=2), "overlaps"),
    "same name": (header(tensors=entry() + entry(offset=128) + bytes(999), num_tensors=2), "occurs twice"),
    "shard": (header(string(b"split.count") + struct.pack("<IH", 2, 3), num_pairs=1), "one of 3 shards"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, case: str) -> None:
    raw, message = WRONG[case]
    (tmp_path / "x.gguf").write_bytes(raw)
    with pytest.raises(GgufError, match=message):
        GgufFile(tmp_path / "x.gguf")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="No such file"):
        GgufFile(tmp_path / "x.gguf")


def test_packed_parts_make_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices packed a few rows at a time have the same bytes as from `pack` of all rows."""
    monkeypatch.setattr(reader, "PART_WEIGHTS", 64 * 64)
    file, backend = GgufFile(write(tmp_path / "model.gguf", rows=150)), Backend(threads=2)
    for name, info in file.tensors.items():
        if len(info.shape) == 2:
            assert np.array_equal(file.fused(backend, [name])[0].data, pack(backend, file.integers(name)).data), name
    experts = zip(file.fused_experts(backend, ["experts.weight"])[0], file.experts("experts.weight"), strict=True)
    assert all(np.array_equal(got.data, pack(backend, want).data) for got, want in experts)


@pytest.mark.parametrize("read", [GgufFile.integers, lambda file, name: file.fused(Backend(threads=1), [name])[0]])
@pytest.mark.parametrize("name", ["a.weight", "d.weight"])
def test_weights_that_are_no_numbers(path: Path, name: str, read: Callable[[GgufFile, str], object]) -> None:
    at = GgufFile(path).tensors[name].offset
    raw = bytearray(path.read_bytes())
    raw[at : at + 2] = b"\xff\xff"
    path.write_bytes(raw)
    with pytest.raises(GgufError, match=f"{name}: .*(not a number|outside its range)"):
        read(GgufFile(path), name)
