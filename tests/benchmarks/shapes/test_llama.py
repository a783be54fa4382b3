"""The model of random weights is the same model in every format. Peers that cannot start are reported."""

import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shapes.llama import TINY, vocabulary, write_folder, write_gguf
from surefoot import LLM
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.server_process import Launch
from surefoot.bench.peers.install import PeerError
from surefoot.bench.peers.model_forms import FORMS, GGUF, W8A8, folder_form, gguf_form
from surefoot.bench.peers.serving import NO_PEER, PeerLimits, start_peers
from surefoot.runner import SessionRunner


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    path = tmp_path_factory.mktemp("shape") / "tiny"
    write_folder(TINY, path, lambda text: None)
    write_gguf(path, Path(sys.executable))
    return path


def logits(model: Path, float_format: str) -> np.ndarray:
    llm = LLM(model, float_format=float_format, max_context=128, max_running=1)
    sessions = SessionRunner(llm.runner)
    return np.array(sessions.prefill(sessions.open(64), [300 + 7 * number for number in range(48)])[0])


def test_every_form_is_the_same_model(folder: Path) -> None:
    exact = logits(folder, "f32")
    for form in (folder, folder / FORMS / W8A8, folder / FORMS / GGUF):
        # Rounding costs at most 0.0002 of correlation; wrongly paired lanes of heads cost 0.001.
        assert np.corrcoef(exact, logits(form, "w8"))[0, 1] > 1 - 0.0004, form


def test_every_token_is_a_piece_of_text(folder: Path) -> None:
    tokenizer = LLM(folder, max_context=128, max_running=1).tokenizer
    assert [tokenizer.decode([token]) for token in (259, 300, TINY.vocab - 1)] == [" word259", " word300", " word1023"]
    assert len(set(vocabulary(TINY.vocab))) == TINY.vocab
    assert tokenizer.decode(tokenizer.encode("Grüße, ab", add_special=False)) == "Grüße, ab"


def test_formats_are_found_or_reported_missing(folder: Path, tmp_path: Path) -> None:
    assert (gguf_form(folder), folder_form(folder)) == (folder / FORMS / GGUF, folder / FORMS / W8A8)
    assert gguf_form(tmp_path / "a.gguf") == tmp_path / "a.gguf"
    assert folder_form(tmp_path) == tmp_path
    with pytest.raises(PeerError, match="GGUF files only"):
        gguf_form(tmp_path)
    with pytest.raises(PeerError, match=r"folders only, not a\.gguf"):
        folder_form(tmp_path / "a.gguf")


class Unable:
    name = "vllm"

    def launch(self, model: Path, port: int, limits: PeerLimits, say: Say) -> Launch:
        raise PeerError("pip failed: no such package")


class Dies:
    name = "openvino"

    def launch(self, model: Path, port: int, limits: PeerLimits, say: Say) -> Launch:
        return Launch((sys.executable, "-c", "print('no memory'); raise SystemExit(3)"), "/health")


def test_peers_that_cannot_start_are_reported(tmp_path: Path) -> None:
    with ExitStack() as stack:
        started = start_peers(stack, [Unable(), Dies()], tmp_path, PeerLimits(1, 1, 1, 1), lambda text: None)
    assert started.endpoints == {}
    assert started.absent == {
        "llamacpp": NO_PEER,
        "vllm": "pip failed: no such package",
        "openvino": "the server ended with code 3: no memory",
    }
