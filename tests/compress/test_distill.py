"""A draft model of stories260K: trained, interrupted, resumed, and run by surefoot."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e ./compress")
from surefoot.evaluate.engines import open_model  # noqa: E402
from surefoot.models import load  # noqa: E402
from surefoot.ops import Backend  # noqa: E402
from surefoot.runner import SessionRunner  # noqa: E402
from surefoot_compress.distill import TrainingProgress, TrainingSettings  # noqa: E402
from surefoot_compress.draft import DraftOptions, make_draft  # noqa: E402
from surefoot_compress.errors import CompressError  # noqa: E402
from tests.stories import stories_gguf  # noqa: E402

README = Path(__file__).parents[2] / "README.md"


def options(steps: int = 12, ffn: int = 128) -> DraftOptions:
    return DraftOptions(README, 3, ffn, TrainingSettings(steps=steps, rate=1e-3, warm_up=2), context=64)


def test_a_distilled_draft_model_learns_and_runs(tmp_path: Path) -> None:
    out = tmp_path / "draft.gguf"
    summary = make_draft(stories_gguf(), out, options())
    assert len(summary.layers) == 3
    assert summary.agreement_distilled > summary.agreement_pruned
    checkpoint, tokenizer = open_model(out)
    runner = SessionRunner.make(backend := Backend(threads=1), load(backend, checkpoint), num_tokens=64)
    assert len(runner.generate(tokenizer.encode("Once upon a time"), 8)) == 8
    assert not list(tmp_path.glob("*.training"))


def test_training_resumes(tmp_path: Path) -> None:
    """An interrupted training gives the same bits as an uninterrupted one."""
    straight, stopped = tmp_path / "straight.gguf", tmp_path / "stopped.gguf"
    make_draft(stories_gguf(), straight, options(4))

    def stop(progress: TrainingProgress) -> None:
        if progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_draft(stories_gguf(), stopped, options(4), stop)
    steps: list[int] = []
    make_draft(stories_gguf(), stopped, options(4), lambda progress: steps.append(progress.step))
    assert steps == [0, 3, 4]
    assert np.array_equal(np.fromfile(straight, np.uint8), np.fromfile(stopped, np.uint8))


def test_unsupported_widths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CompressError, match="multiple of 32"):
        make_draft(stories_gguf(), tmp_path / "draft.gguf", options(ffn=100))
