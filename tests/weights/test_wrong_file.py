"""Files and folders that are not the expected model are refused with a message that says what to do."""

import struct
from pathlib import Path

import pytest

from surefoot.core.model_files import ModelFileError
from surefoot.weights import GgufError, ModelNotFoundError, find_model, open_checkpoint

FILES = {
    "pytorch_model.bin": (b"PK\x03\x04rest", "a pickle, .*safetensors or a GGUF"),
    "old.pt": (b"\x80\x02}q", "a pickle"),
    "renamed.gguf": (b"PK\x03\x04rest", "a pickle"),
    "model.safetensors": (struct.pack("<Q", 2) + b"{}", "give the folder"),
    "empty.gguf": (b"", "is empty: fetch it again"),
    "page.gguf": (b"\n<!DOCTYPE html><html>", "a web page: download the file itself"),
    "pointer.gguf": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer.*git lfs pull"),
    "config.json": (b'{"model_type": "llama"}', "a JSON file: give the folder"),
    "cut.gguf": (b"GGUF\x03\0\0\0\1\0\0", "cut short or damaged; fetch it again"),
    "noise.gguf": (b"\x01\x02\x03\x04\x05", "not a GGUF file"),
}
FOLDERS = {
    "empty": ([], "give the folder that has config.json"),
    "adapter": (["adapter_config.json", "adapter_model.safetensors"], "an adapter"),
    "weights alone": (["model.safetensors"], "fetch config.json and tokenizer.json"),
    "pickles": (["pytorch_model.bin"], "a pickle"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_model(tmp_path: Path, name: str) -> None:
    data, message = FILES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(GgufError, match=message):
        open_checkpoint(find_model(str(tmp_path / name)))


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_that_is_no_model(tmp_path: Path, case: str) -> None:
    names, message = FOLDERS[case]
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ModelNotFoundError, match=message):
        find_model(str(tmp_path))


def test_a_folder_of_pickles_with_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(FileNotFoundError, match="a pickle"):
        open_checkpoint(find_model(str(tmp_path)))


def test_a_config_beside_the_only_gguf_file_means_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "a.gguf").touch()
    assert find_model(str(tmp_path)) == tmp_path / "a.gguf"


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused(name: str) -> None:
    with pytest.raises((GgufError, ModelFileError), match="not a regular file"):
        open_checkpoint(Path(name))
