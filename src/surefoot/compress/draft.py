"""The target makes its own draft: pruned by importance, taught by the target, written as a GGUF file of its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.compress.distill import Progress, Settings, Student, Teacher, agreement, teach
from surefoot.compress.forward import check_family
from surefoot.compress.ggml_grids import GGML
from surefoot.compress.later import CompressError, torch
from surefoot.compress.layer import METHODS, Made, quantise
from surefoot.compress.prune import Cut, choose_cut, importances
from surefoot.compress.whole import check_place
from surefoot.compress.write_gguf import write_gguf
from surefoot.evaluate import cut_windows
from surefoot.evaluate.opening import open_model
from surefoot.weights import GgufFile

IMPORTANCE_WINDOWS, HELD_OUT = 8, 8


@dataclass(frozen=True)
class DraftOrder:
    """What draft to make, and of which text: the last windows of it are held out."""

    text: Path
    num_layers: int
    ffn: int
    settings: Settings
    context: int = 256
    threads: int = 1


@dataclass(frozen=True)
class DraftSummary:
    """agreement: the share of held-out positions where the draft's likeliest token is the target's."""

    layers: tuple[int, ...]
    ffn: int
    num_weights: int
    agreement_pruned: float
    agreement_distilled: float


def make_draft(
    source: Path, out: Path, order: DraftOrder, say: Callable[[Progress], None] = lambda progress: None
) -> DraftSummary:
    """Training's state stands beside `out` until it is done: the same command goes on from there."""
    checkpoint, tokenizer = open_model(source)
    if not isinstance(checkpoint, GgufFile):
        raise CompressError("drafts are made of GGUF files, whose tokenizer they copy")
    config = check_family(checkpoint)
    check_place(out)
    torch.set_num_threads(order.threads)
    windows = cut_windows(tokenizer, order.text.read_text(encoding="utf-8"), order.context)
    if len(windows) <= 2 * HELD_OUT:
        raise CompressError(f"{order.text} has {len(windows)} windows of {order.context} tokens: give more text")
    learned, held_out = windows[:-HELD_OUT], windows[-HELD_OUT:]
    found = importances(checkpoint, config, learned[:: len(learned) // IMPORTANCE_WINDOWS][:IMPORTANCE_WINDOWS])
    cut = choose_cut(found, order.num_layers, order.ffn)
    teacher = Teacher(checkpoint, config)
    student = Student(checkpoint, config, cut, teacher)
    before = agreement(teacher, student, held_out)
    say(Progress(0, 0.0, before))
    state = out.with_suffix(".training")
    teach(teacher, student, learned, order.settings, state, say)
    after = agreement(teacher, student, held_out)
    _write(checkpoint, student, cut, out)
    state.unlink(missing_ok=True)
    size = sum(one.numel() for one in student.parameters().values())
    return DraftSummary(cut.layers, cut.ffn, size, before, after)


def _write(checkpoint: GgufFile, student: Student, cut: Cut, out: Path) -> None:
    family = checkpoint.metadata["general.architecture"]
    changed = {f"{family}.block_count": len(cut.layers), f"{family}.feed_forward_length": cut.ffn}
    write_gguf(checkpoint, _tensors(checkpoint, student), out, {"surefoot.draft.layers": str(cut.layers)}, changed)


def _tensors(checkpoint: GgufFile, student: Student) -> Iterator[tuple[str, Made]]:
    """In eight bits, where rows divide; what the draft shares with the target too."""
    learned = {name: one.detach().numpy() for name, one in student.parameters().items()}
    shared = [name for name in checkpoint.tensors if not name.startswith("blk.") and name not in learned]
    for name, values in [*learned.items(), *((name, checkpoint.floats(name)) for name in shared)]:
        fits = values.ndim == 2 and GGML["Q8_0"].suits(values.shape[1])
        floats = np.ascontiguousarray(values, np.float32)
        yield name, quantise(floats, None, GGML["Q8_0"], METHODS["rtn"]) if fits else floats
