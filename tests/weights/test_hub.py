"""Models by name, with the real huggingface_hub over a cache made by hand, and no network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub.utils import filter_repo_objects

from surefoot.weights.hub import ModelNotFoundError, find_model
from surefoot.weights.hub_id import FILES, NOT_FILES, HubId, parse_id

COMMIT = "a" * 40


def make_cache(home: Path, repository: str, files: dict[str, bytes], revision: str = "main") -> Path:
    """What huggingface_hub leaves behind after fetching."""
    root = home / "hub" / f"models--{repository.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / revision).write_text(COMMIT)
    for name, data in files.items():
        (snapshot / name).write_bytes(data)
    return snapshot


def find(home: Path, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: huggingface_hub reads its settings once."""
    code = "import sys; from surefoot.weights import find_model; print(find_model(sys.argv[1]))"
    settings = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", **environment}
    return subprocess.run(
        [sys.executable, "-c", code, name], capture_output=True, text=True, check=False, env={**os.environ, **settings}
    )


def test_local_paths_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    (tmp_path / "owner" / "name" / "config.json").write_text("{}")
    assert find_model("owner/name") == Path("owner/name")


def test_a_folder_with_one_gguf_file_means_that(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"without config\.json"):
        find_model(str(tmp_path))
    (tmp_path / "a.gguf").touch()
    assert find_model(str(tmp_path)) == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ModelNotFoundError, match=r"a\.gguf, b\.gguf"):
        find_model(str(tmp_path))


def test_cached_models_are_found_offline(tmp_path: Path) -> None:
    snapshot = make_cache(tmp_path, "owner/name", {"config.json": b"{}", "model.safetensors": b""})
    done = find(tmp_path, "owner/name")
    assert (done.stdout.strip(), done.stderr) == (str(snapshot), "")


def test_cached_revisions_and_files(tmp_path: Path) -> None:
    snapshot = make_cache(tmp_path, "owner/name-GGUF", {"name-Q4_K_M.gguf": b"GGUF"}, revision="v2")
    done = find(tmp_path, "owner/name-GGUF@v2/name-Q4_K_M.gguf")
    assert done.stdout.strip() == str(snapshot / "name-Q4_K_M.gguf")


def test_a_repository_of_pickles_is_refused(tmp_path: Path) -> None:
    make_cache(tmp_path, "owner/name", {"config.json": b"{}", "pytorch_model.bin": b"\x80"})
    done = find(tmp_path, "owner/name")
    assert done.returncode == 1
    assert "ModelNotFoundError" in done.stderr.splitlines()[-1]
    assert "safetensors" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("settings", [{}, {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}])
def test_without_network_it_says_what_to_do(tmp_path: Path, settings: dict[str, str]) -> None:
    """Forbidden to try, or nobody answers."""
    done = find(tmp_path, "owner/other", **settings)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "ModelNotFoundError" in last
    assert "owner/other: not in the cache" in last
    assert "give its path" in last


@pytest.mark.parametrize(
    "name", ["missing.gguf", "./owner/name", "/no/such/folder", "a/b/c", "name", "folder/model.gguf"]
)
def test_what_can_only_be_a_path_never_asks_the_hub(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file"):
        find_model(name)


ADDRESSES = {
    "hf.co/owner/name": HubId("owner/name"),
    "https://huggingface.co/owner/name": HubId("owner/name"),
    "https:/huggingface.co/owner/name/": HubId("owner/name"),  # as a Path has it
    "https://huggingface.co/owner/name/tree/main": HubId("owner/name"),
    "https://huggingface.co/owner/name/tree/refs%2Fpr%2F1": HubId("owner/name", "refs/pr/1"),
    "https://huggingface.co/owner/name/blob/main/file.gguf": HubId("owner/name", None, "file.gguf"),
    "https://huggingface.co/owner/name/blob/v2/sub/file.gguf": HubId("owner/name", "v2", "sub/file.gguf"),
    "https://huggingface.co/owner/name/resolve/main/file.gguf?download=true": HubId("owner/name", None, "file.gguf"),
    "https://huggingface.co/owner/name/blob/main/config.json": HubId("owner/name"),
    "hf.co/owner/name:Q4_K_M": HubId("owner/name", tag="Q4_K_M"),
    "owner/name:Q4_K_M": HubId("owner/name", tag="Q4_K_M"),
    "hf.co/owner/name/file.gguf": HubId("owner/name", None, "file.gguf"),
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_hub_addresses_are_understood(address: str) -> None:
    assert parse_id(address) == ADDRESSES[address]


@pytest.mark.parametrize("address", ["https://example.com/owner/name", "hf.co/a/b/blob/main/../../x.gguf", "hf.co/a"])
def test_other_addresses_are_not(address: str) -> None:
    assert parse_id(address) is None


def test_a_tag_names_the_file_that_has_it(tmp_path: Path) -> None:
    files = {"m-Q4_K_M.gguf": b"GGUF", "m-Q8_0.gguf": b"GGUF", "mmproj-Q8_0.gguf": b"GGUF"}
    snapshot = make_cache(tmp_path, "owner/name", files)
    for name in ("owner/name:q4_k_m", "hf.co/owner/name:Q4_K_M"):
        assert find(tmp_path, name).stdout.strip() == str(snapshot / "m-Q4_K_M.gguf")
    assert "m-Q4_K_M.gguf, m-Q8_0.gguf" in find(tmp_path, "owner/name:Q").stderr
    assert "has none" in find(tmp_path, "owner/name:IQ1").stderr


def test_files_that_are_fetched() -> None:
    wanted = [
        "config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja", "modules.json", "1_Pooling/config.json",
        "2_Dense/config.json", "2_Dense/model.safetensors", "tiktoken.model",
    ]  # fmt: skip
    others = [
        "tokenization_kimi.py",
        "README.md", "pytorch_model.bin", "consolidated.safetensors", "original/config.json", "onnx/config.json",
        "8bit/model.safetensors", "16bit/model.safetensors", "2_Copy/model.safetensors", "1_a/b/config.json",
    ]  # fmt: skip
    names = filter_repo_objects([*wanted, *others], allow_patterns=FILES, ignore_patterns=NOT_FILES)
    assert list(names) == wanted


def test_ids() -> None:
    assert parse_id("owner/name") == HubId("owner/name")
    assert parse_id("owner/name@refs/pr/1") == HubId("owner/name", "refs/pr/1")
    assert parse_id("owner/name/file.gguf") == HubId("owner/name", None, "file.gguf")
    shards = parse_id("o/n/big-00001-of-00003.gguf")
    assert shards is not None
    assert shards.patterns == ["big-*-of-00003.gguf"]
