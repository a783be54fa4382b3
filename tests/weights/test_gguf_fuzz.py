"""A valid file with bytes changed, inserted or removed opens or raises GgufError, with bounded memory."""

import functools
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.ops import Backend
from surefoot.weights import GgufError, GgufFile, MetadataError
from tests.weights.gguf_files import write

# Opening may take a few Python objects per entry of the header, and reading a tensor its float32 form with temporaries.
# Both are multiples of the file's length. Trusting a count in the file would take gigabytes.
OPEN_FACTOR, READ_FACTOR, SLACK = 40, 64, 1 << 18

INTERESTING = [0, 1, 2, 3, 7, 8, 9, 31, 32, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


@functools.cache
def valid() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write(Path(folder) / "model.gguf").read_bytes()


@functools.cache
def backend() -> Backend:
    return Backend(threads=1)


@functools.cache
def data_start() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        path.write_bytes(valid())
        return min(info.offset for info in GgufFile(path).tensors.values())


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    raw = bytearray(valid())
    header = st.integers(0, data_start() - 8)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(header)
        match draw(st.sampled_from(["byte", "number", "cut", "insert", "remove"])):
            case "byte":
                raw[min(at, len(raw) - 1)] = draw(st.integers(0, 255))
            case "number":
                width = draw(st.sampled_from([4, 8]))
                raw[at : at + width] = (draw(st.sampled_from(INTERESTING)) % 2 ** (8 * width)).to_bytes(width, "little")
            case "cut":
                del raw[max(1, draw(st.integers(0, len(raw)))) :]
            case "insert":
                raw[at:at] = draw(st.binary(min_size=1, max_size=16))
            case "remove":
                del raw[at : at + draw(st.integers(1, 16))]
        raw = raw or bytearray(b"G")
    return bytes(raw)


def read_everything(file: GgufFile) -> None:
    for value in file.metadata.values():
        if not isinstance(value, str | int | float):
            list(value)
    for name, info in file.tensors.items():
        file.floats(name)
        if len(info.shape) == 2:
            file.integers(name)
            file.fused(backend(), [name])[0]
        if len(info.shape) == 3:
            file.fused_experts(backend(), [name])[0]


def check(raw: bytes, path: Path) -> None:
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        file = GgufFile(path)
        assert tracemalloc.get_traced_memory()[1] <= OPEN_FACTOR * len(raw) + SLACK
        read_everything(file)
    except (GgufError, MetadataError):
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= READ_FACTOR * len(raw) + SLACK


@given(raw=mutated())
@settings(max_examples=400)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_changed_files(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    check(raw, tmp_path_factory.getbasetemp() / "fuzz.gguf")


@given(raw=st.binary(min_size=1, max_size=400).map(lambda tail: b"GGUF\x03\0\0\0" + tail))
@settings(max_examples=200)
def test_random_files(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    check(raw, tmp_path_factory.getbasetemp() / "random.gguf")


def test_the_unchanged_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "valid.gguf").write_bytes(valid())
    read_everything(GgufFile(tmp_path / "valid.gguf"))
