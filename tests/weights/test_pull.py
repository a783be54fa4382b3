"""Models fetched from a hub that runs on this machine."""

import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from surefoot.models import check_supported
from surefoot.weights.hub_files import read_architecture
from tests.weights.local_hub import LocalHub, serve_hub

FIND = """
import sys
from surefoot.models import check_supported
from surefoot.weights import find_model
try:
    print(find_model(sys.argv[1], check_supported))
except (ValueError, OSError) as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
MIB = 1 << 20


def gguf_bytes(architecture: str, nbytes: int) -> bytes:
    """A GGUF file's beginning, and random bytes in place of the rest."""
    key, value = b"general.architecture", architecture.encode()
    head = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    return head + random.Random(0).randbytes(nbytes - len(head))


def start(hub: LocalHub, home: Path, name: str) -> subprocess.Popen[str]:
    """In a process of its own: huggingface_hub reads its settings once."""
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", FIND, name],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **settings},
    )  # fmt: skip


def find(hub: LocalHub, home: Path, name: str) -> tuple[int, str]:
    """Exit code, and the path found or the error's message."""
    process = start(hub, home, name)
    printed, errors = process.communicate(timeout=300)
    return process.returncode, printed.strip() if process.returncode == 0 else errors.strip().splitlines()[-1]


def parts(home: Path) -> list[Path]:
    return list(home.glob("hub/models--*/blobs/*.part"))


def received_bytes(home: Path) -> int:
    return sum(part.stat().st_size for part in parts(home))


def test_a_file_by_its_tag(tmp_path: Path) -> None:
    data = gguf_bytes("llama", MIB)
    files = {"m-Q4_K_M.gguf": data, "m-Q8_0.gguf": b"GGUF", "mmproj-Q4_K_M.gguf": b"GGUF"}
    with serve_hub(files) as hub:
        code, path = find(hub, tmp_path, "owner/name:q4_k_m")
        assert (code, Path(path).name, Path(path).read_bytes() == data) == (0, "m-Q4_K_M.gguf", True)
        assert list(hub.num_sent) == ["m-Q4_K_M.gguf"]  # nothing else was fetched
        assert find(hub, tmp_path, "owner/name:Q")[1].startswith(
            "ModelNotFoundError: owner/name:Q is not one GGUF file"
        )
    assert parts(tmp_path) == []


def test_a_folder(tmp_path: Path) -> None:
    files = {
        "config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}", "model.safetensors": bytes(MIB),
        "pytorch_model.bin": b"\x80",
    }  # fmt: skip
    with serve_hub(files) as hub:
        code, path = find(hub, tmp_path, "owner/name")
    assert code == 0, path
    assert {file.name for file in Path(path).iterdir()} == {"config.json", "tokenizer.json", "model.safetensors"}


@pytest.mark.parametrize(
    "files",
    [
        {"m-Q4_K_M.gguf": gguf_bytes("mamba", MIB)},
        {"config.json": b'{"model_type": "mamba"}', "model.safetensors": bytes(MIB)},
    ],
)
def test_an_unsupported_architecture_is_refused_before_the_download(tmp_path: Path, files: dict[str, bytes]) -> None:
    with serve_hub(files) as hub:
        code, message = find(hub, tmp_path, "owner/name:Q4_K_M" if len(files) == 1 else "owner/name")
        assert (code, message.partition(";")[0]) == (1, "ValueError: the model family 'mamba' is not supported")
        assert sum(hub.num_sent.values()) < 10_000


@pytest.mark.parametrize("num_kills", [3, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_killed_download_is_resumed(tmp_path: Path, num_kills: int) -> None:
    """Killed at random moments. What was received before is not fetched again."""
    data, generator, received = gguf_bytes("llama", 24 * MIB), random.Random(1), 0
    with serve_hub({"m-Q4_K_M.gguf": data}) as hub:
        hub.piece_s = 0.004  # 16 MB a second at most
        for _ in range(num_kills):
            process = start(hub, tmp_path, "owner/name:Q4_K_M")
            wanted = received + generator.randrange(MIB // 2, 20 * MIB // num_kills)
            while process.poll() is None and received_bytes(tmp_path) <= wanted:
                time.sleep(0.002)
            process.kill()
            process.wait()
            assert received_bytes(tmp_path) >= received
            received = received_bytes(tmp_path)
        hub.piece_s, sent = 0.0, hub.num_sent["m-Q4_K_M.gguf"]
        code, path = find(hub, tmp_path, "owner/name:Q4_K_M")
        assert (code, Path(path).read_bytes() == data) == (0, True)
        slack = MIB // 2  # bytes that tell the architecture, and pieces under way to a process that was killed
        assert received >= num_kills * MIB // 2
        assert hub.num_sent["m-Q4_K_M.gguf"] - sent <= len(data) - received + slack
    assert parts(tmp_path) == []


def test_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    data = gguf_bytes("llama", MIB)
    with serve_hub({"m-Q4_K_M.gguf": data}) as hub:
        hub.flipped.add("m-Q4_K_M.gguf")
        code, message = find(hub, tmp_path, "owner/name:Q4_K_M")
        assert (code, message.startswith("ChecksumError: m-Q4_K_M.gguf: what was received")) == (1, True), message
        assert parts(tmp_path) == []
        hub.flipped.clear()
        assert find(hub, tmp_path, "owner/name:Q4_K_M")[0] == 0


def test_a_part_left_by_a_changed_file_is_discarded(tmp_path: Path) -> None:
    """Bytes of the part file were damaged on this machine: the checksum tells, and the next try begins anew."""
    data = gguf_bytes("llama", MIB)
    with serve_hub({"m-Q4_K_M.gguf": data}) as hub:
        assert find(hub, tmp_path, "owner/name:Q4_K_M")[0] == 0
        (blob,) = (file for file in tmp_path.glob("hub/models--*/blobs/*") if file.is_file())
        blob.rename(blob.with_name(f"{blob.name}.part"))
        with blob.with_name(f"{blob.name}.part").open("r+b") as part:
            part.truncate(MIB // 2)
            part.write(b"wrong")
        assert find(hub, tmp_path, "owner/name:Q4_K_M")[1].startswith("ChecksumError")
        code, path = find(hub, tmp_path, "owner/name:Q4_K_M")
        assert (code, Path(path).read_bytes() == data) == (0, True)


def test_two_at_once_fetch_it_once(tmp_path: Path) -> None:
    data = gguf_bytes("llama", 4 * MIB)
    with serve_hub({"m-Q4_K_M.gguf": data}) as hub:
        hub.piece_s = 0.01
        processes = [start(hub, tmp_path, "owner/name:Q4_K_M") for _ in range(2)]
        for process in processes:
            assert process.communicate(timeout=300)[0].strip().endswith("m-Q4_K_M.gguf")
        assert hub.num_sent["m-Q4_K_M.gguf"] < len(data) + 10_000


def test_without_ranges_a_whole_download_works(tmp_path: Path) -> None:
    data = gguf_bytes("llama", MIB)
    with serve_hub({"m-Q4_K_M.gguf": data}) as hub:
        hub.has_ranges = False
        code, path = find(hub, tmp_path, "owner/name:Q4_K_M")
    assert (code, Path(path).read_bytes() == data) == (0, True)


def test_architecture_of_the_first_bytes() -> None:
    head = gguf_bytes("qwen3", 4096)
    assert read_architecture(head) == "qwen3"
    assert [read_architecture(head[:length]) for length in range(60)] == [None] * 60
    assert read_architecture(b"GGUX" + head[4:]) is None


def test_an_unknown_architecture_is_left_to_the_loader() -> None:
    check_supported({})
