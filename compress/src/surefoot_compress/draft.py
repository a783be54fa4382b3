"""Makes a draft model from its target: prunes by importance, distils from the target, writes a GGUF file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.evaluate import cut_windows
from surefoot.evaluate.engines import open_model
from surefoot.weights import GgufFile
from surefoot_compress.arrays import check_output_path
from surefoot_compress.distill import Student, Teacher, TrainingProgress, TrainingSettings, agreement, teach
from surefoot_compress.errors import CompressError
from surefoot_compress.forward import check_family
from surefoot_compress.ggml_grids import GGML
from surefoot_compress.layer import CompressedTensor, quantise
from surefoot_compress.lazy_torch import torch
from surefoot_compress.methods import METHODS
from surefoot_compress.prune import Pruning, choose_pruning, importances
from surefoot_compress.write_gguf import write_gguf

IMPORTANCE_WINDOWS = 8  # windows that importance is measured on
HELD_OUT = 8  # windows, the last of the text, that agreement is measured on


@dataclass(frozen=True)
class DraftOptions:
    """The draft to make."""

    text: Path  # to train on; its last windows are held out
    num_layers: int  # that the draft keeps
    ffn: int  # feed-forward units that each layer keeps
    settings: TrainingSettings  # of the training
    context: int = 256  # tokens in a window
    threads: int = 1  # that torch uses


@dataclass(frozen=True)
class DraftSummary:
    """The draft that was made. Agreement is the share of held-out positions where draft and target agree on the
    likeliest token."""

    layers: tuple[int, ...]  # of the target, that the draft keeps
    ffn: int  # feed-forward units in each
    num_weights: int  # trained, that is, not shared with the target
    agreement_pruned: float  # before training
    agreement_distilled: float  # after training


def make_draft(
    source: Path, out: Path, options: DraftOptions, report: Callable[[TrainingProgress], None] = lambda progress: None
) -> DraftSummary:
    """Writes a draft of the model at `source` to `out`. Training state stays beside `out` until training is done, so
    that the same call resumes."""
    checkpoint, tokenizer = open_model(source)
    if not isinstance(checkpoint, GgufFile):
        raise CompressError("a draft is made from a GGUF file only, whose tokenizer it copies: give one")
    config = check_family(checkpoint)
    check_output_path(out)
    torch.set_num_threads(options.threads)
    windows = cut_windows(tokenizer, options.text.read_text(encoding="utf-8"), options.context)
    if len(windows) <= 2 * HELD_OUT:
        raise CompressError(f"{options.text} has {len(windows)} windows of {options.context} tokens: give more text")
    training, held_out = windows[:-HELD_OUT], windows[-HELD_OUT:]
    sample = training[:: len(training) // IMPORTANCE_WINDOWS][:IMPORTANCE_WINDOWS]
    pruning = choose_pruning(importances(checkpoint, config, sample), options.num_layers, options.ffn)
    teacher = Teacher(checkpoint, config)
    student = Student(checkpoint, config, pruning, teacher)
    before = agreement(teacher, student, held_out)
    report(TrainingProgress(0, 0.0, before))
    state = out.with_suffix(".training")
    teach(teacher, student, training, options.settings, state, report)
    after = agreement(teacher, student, held_out)
    _write(checkpoint, student, pruning, out)
    state.unlink(missing_ok=True)
    num_weights = sum(parameter.numel() for parameter in student.parameters().values())
    return DraftSummary(pruning.layers, pruning.ffn, num_weights, before, after)


def _write(checkpoint: GgufFile, student: Student, pruning: Pruning, out: Path) -> None:
    family = checkpoint.metadata["general.architecture"]
    changed = {f"{family}.block_count": len(pruning.layers), f"{family}.feed_forward_length": pruning.ffn}
    write_gguf(checkpoint, _tensors(checkpoint, student), out, {"surefoot.draft.layers": str(pruning.layers)}, changed)


def _tensors(checkpoint: GgufFile, student: Student) -> Iterator[tuple[str, CompressedTensor]]:
    """All tensors of the draft, shared ones too. Matrices whose rows Q8_0 divides are in Q8_0, the rest in float."""
    trained = {name: parameter.detach().numpy() for name, parameter in student.parameters().items()}
    shared = [name for name in checkpoint.tensors if not name.startswith("blk.") and name not in trained]
    for name, values in [*trained.items(), *((name, checkpoint.floats(name)) for name in shared)]:
        fits = values.ndim == 2 and GGML["Q8_0"].suits(values.shape[1])
        floats = np.ascontiguousarray(values, np.float32)
        yield name, quantise(floats, None, GGML["Q8_0"], METHODS["rtn"]) if fits else floats
