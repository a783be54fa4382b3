"""A valid file with its header changed, or headers of random JSON: a SafetensorsError or a file, and no more memory
than it justifies."""

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.weights import SafetensorsError
from surefoot.weights.safetensors import DTYPES, read_safetensors

# Opening takes a few Python objects per character of the header at most ("[],[],..."), reading a tensor its float32
# form with temporaries. Trusting a count in the file would take gigabytes.
OPEN_FACTOR, READ_FACTOR, SLACK = 60, 64, 1 << 18

INTERESTING: list[Any] = [
    0, 1, 2, 7, 8, -1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64, 10**30, 1.0, 1e300, True, None, "", "F32", [], [0], {},
]  # fmt: skip
ENTRIES = {
    "a": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [60, 68]},
    "c": {"dtype": "I32", "shape": [2, 1, 2], "data_offsets": [68, 84]},
    "d": {"dtype": "F16", "shape": [0, 7], "data_offsets": [84, 84]},
    "e": {"dtype": "F32", "shape": [], "data_offsets": [84, 88]},
}
DATA = np.arange(22, dtype=np.float32).tobytes()


def build(header: bytes, data: bytes = DATA, size: int | None = None) -> bytes:
    return (len(header) if size is None else size).to_bytes(8, "little") + header + data


def valid() -> bytes:
    return build(json.dumps({"__metadata__": {"format": "pt"}, **ENTRIES}).encode())


def check(raw: bytes, path: Path) -> None:
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        tensors = read_safetensors(path)
        assert tracemalloc.get_traced_memory()[1] <= OPEN_FACTOR * len(raw) + SLACK
        assert sum(tensor.nbytes for tensor in tensors.values()) <= len(raw)
        for tensor in tensors.values():
            assert tensor.array().shape == tensor.shape
            if not tensor.dtype.startswith("F8"):
                assert tensor.floats().shape == tensor.shape
    except SafetensorsError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= READ_FACTOR * len(raw) + SLACK


@st.composite
def changed_bytes(draw: st.DrawFn) -> bytes:
    raw = bytearray(valid())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(raw) - len(DATA))))
        match draw(st.sampled_from(["byte", "number", "cut", "insert", "remove"])):
            case "byte":
                raw[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "number":
                raw[:8] = draw(st.integers(0, 2**64 - 1)).to_bytes(8, "little")
            case "cut":
                del raw[draw(st.integers(0, len(raw))) :]
            case "insert":
                raw[at:at] = draw(st.sampled_from([b"0", b"9" * 400, b"[", b"{", b'"', b"-", b"e9", b"\\ud800"]))
            case "remove":
                del raw[at : at + draw(st.integers(1, 16))]
    return bytes(raw) or b"\0"


@st.composite
def changed_entries(draw: st.DrawFn) -> bytes:
    """Headers that are still JSON, with changed shapes, types and offsets."""
    entries: dict[str, Any] = json.loads(json.dumps(ENTRIES))
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(list(entries)))
        entry, value = entries[name], draw(st.sampled_from(INTERESTING))
        match draw(st.sampled_from(["dtype", "size", "place", "shape", "remove", "whole", "over"])):
            case "dtype":
                entry["dtype"] = draw(st.sampled_from([*DTYPES, "F4", value]))
            case "size":
                entry["shape"] = [*entry["shape"][1:], value] if isinstance(entry.get("shape"), list) else value
            case "place":
                entry["data_offsets"] = draw(st.sampled_from([[value, 60], [0, value], [value], value, [60, 0]]))
            case "shape":
                entry["shape"] = draw(st.sampled_from([value, [value] * 3, [1] * 80, [2**32, 2**32], [0, 2**61]]))
            case "remove":
                entry.pop(draw(st.sampled_from(["dtype", "shape", "data_offsets"])), None)
            case "over":  # many tensors over the same bytes
                entries |= {f"{name}{i}": dict(ENTRIES["a"]) for i in range(20)}
            case "whole":
                entries[f"new {name}"] = {"dtype": "U8", "shape": [0, value], "data_offsets": [0, 0]}
    return build(json.dumps(entries).encode())


@given(raw=changed_bytes())
@settings(max_examples=400)
def test_changed_files(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    check(raw, tmp_path_factory.getbasetemp() / "fuzz.safetensors")


@given(raw=changed_entries())
@settings(max_examples=400)
def test_changed_entries(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    check(raw, tmp_path_factory.getbasetemp() / "entries.safetensors")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
)


@given(header=JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200))
@settings(max_examples=300)
def test_random_headers(tmp_path_factory: pytest.TempPathFactory, header: bytes) -> None:
    check(build(header), tmp_path_factory.getbasetemp() / "random.safetensors")


@pytest.mark.parametrize("header", [b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b"[" + b"[]," * 30_000 + b"1]"])
def test_hostile_headers(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "hostile.safetensors"
    check(build(header), path)
    with pytest.raises(SafetensorsError):
        read_safetensors(path)


def test_overlapping_tensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "over.safetensors"
    path.write_bytes(build(json.dumps({"a": ENTRIES["a"], "b": ENTRIES["a"]}).encode()))
    with pytest.raises(SafetensorsError, match="overlaps another"):
        read_safetensors(path)


@pytest.mark.parametrize("shape", [[0, 2**61], [0] + [2**40] * 3, [1] * 80])
def test_shapes_of_nothing_are_bounded(tmp_path: Path, shape: list[int]) -> None:
    path = tmp_path / "empty.safetensors"
    size = 4 * math.prod(shape)
    path.write_bytes(build(json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()))
    with pytest.raises(SafetensorsError, match="too large"):
        read_safetensors(path)


def test_the_unchanged_file_is_read(tmp_path: Path) -> None:
    check(valid(), tmp_path / "valid.safetensors")
    tensors = read_safetensors(tmp_path / "valid.safetensors")
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        name: tuple(entry["shape"]) for name, entry in ENTRIES.items()
    }
    assert np.array_equal(tensors["a"].floats(), np.arange(15, dtype=np.float32).reshape(3, 5))
