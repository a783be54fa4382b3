"""EAGLE-3 heads: every published form, against the layer in torch; what the target's pass keeps; refusals."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.formats import FLOAT32, SERVED, ModelFormat
from surefoot.models import Batch, EagleHead, Model, Workspace, empty_batch, load, load_eagle, with_head
from surefoot.ops import Backend, KvForm
from surefoot.ops.arrays import F32, I64
from surefoot.runner import SessionRunner, Work
from surefoot.weights import MetadataError, is_eagle, open_eagle
from tests.models import tiny, tiny_eagle

LENGTH, DEPTH = 60, 4
TOKENS = tiny.tokens(LENGTH)
forms = pytest.mark.parametrize("form", tiny_eagle.FORMS)
KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "grouped heads, other layers": {"kv_heads": 2, "layers": (1, 2, 3)},
    "adds normed rows": {"norm_before_residual": True},
    "features normed together": {"norms": "input_norm"},
    "narrower, with a table of its own": {"width": 64},
    "all tokens": {"ids": range(tiny.VOCAB)},
    "a copy of the table": {"own_table": True},
}
IN_FOLDERS: dict[str, dict[str, Any]] = {
    "further guesses read normed rows": {"norm_output": True},
    "each feature normed": {"norms": "fc_norm"},
    "heads normed": {"norms": "heads"},
}


def make_head(target: str = "llama", **options: Any) -> tiny_eagle.TinyHead:
    return tiny_eagle.make_head(*tables(target), **options)


def tables(target: str = "llama") -> tuple[F32, F32]:
    model = tiny.reference(target)
    return tuple(part.weight.detach().numpy() for part in (model.get_input_embeddings(), model.lm_head))  # type: ignore[return-value]


def loaded(backend: Backend, path: Path, target: Model, fmt: ModelFormat = SERVED) -> EagleHead:
    assert is_eagle(path)
    return load_eagle(backend, open_eagle(path), target, fmt)


class DraftedText:
    """A text that the target has computed in chunks, with the head's keys and values."""

    def __init__(self, backend: Backend, model: Model, lengths: Sequence[int], record: bool = True) -> None:
        self.backend, self.model, self.workspace = backend, model, Workspace()
        self.runner: SessionRunner = tiny.make_runner(backend, model, KvForm.TWO_LIMBS, record)
        session, fused, start = self.runner.open(LENGTH + DEPTH), [], 0
        for length in lengths:
            self.runner.execute([Work(session, TOKENS[start : start + length], length)])
            fused.append(self.runner.runner.hidden(length).copy())
            start += length
        self.fused: F32 = np.concatenate(fused)
        self.table: I64 = session.tables[0]

    def rows(self, tokens: Sequence[int], first: int, before: F32) -> F32:
        """The head's rows of tokens at the places from `first` on, each in a chunk of its own."""
        places, size = np.arange(first, first + len(tokens)), self.runner.runner.block_size
        batch: Batch = empty_batch(len(tokens), len(tokens), 0, {0: len(self.table)})
        batch.tokens[:], batch.positions[:] = tokens, places
        kv = batch.kv[0]
        kv.chunks.starts[:], kv.chunks.lengths[:] = np.arange(len(tokens) + 1), places + 1
        kv.chunks.block_table[:] = self.table
        kv.slots[:] = self.table[places // size] * size + places % size
        assert self.model.drafting is not None
        return self.model.drafting.guess(self.backend, batch, before, self.runner.runner.kv.memory, self.workspace)

    def logits(self, rows: F32) -> F32:
        """One for each row of the head's matrix."""
        drafting = self.model.drafting
        assert drafting is not None
        outputs = drafting.outputs
        assert outputs.head is not None
        return dataclasses.replace(self.model, norm=outputs.norm, head=outputs.head).logits(
            self.backend, rows, Workspace()
        )

    def chain(self) -> tuple[list[int], F32]:
        """Greedy drafts after the text, and their rows."""
        drafting, drafts, chained, before = self.model.drafting, list[int](), list[F32](), self.fused[-2:-1]
        assert drafting is not None
        for place in range(LENGTH - 1, LENGTH - 1 + DEPTH):
            rows = self.rows([drafts[-1] if drafts else TOKENS[-1]], place, before)
            best, ids = int(self.logits(rows).argmax()), drafting.outputs.ids
            drafts.append(best if ids is None else int(ids[best]))
            before = drafting.further(self.backend, rows)
            chained.append(rows.copy())
        return drafts, np.concatenate(chained)

    @property
    def cache(self) -> F32:
        return self.runner.runner.kv.caches[len(self.model.config.layers)].data


def streams(head: tiny_eagle.TinyHead) -> list[Any]:
    """The target's, before the layers that the head reads."""
    torch, model = tiny.torch, tiny.reference("llama")
    seen: dict[int, Any] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda _, given, number=number: seen.update({number: given[0][0]}))
        for number, layer in enumerate(model.model.layers)
    ]
    hooks.append(model.model.norm.register_forward_pre_hook(lambda _, given: seen.update({3: given[0][0]})))
    with torch.no_grad():
        model(torch.tensor([TOKENS]))
    for hook in hooks:
        hook.remove()
    return [seen[number] for number in head.layers]


def check(backend: Backend, head: tiny_eagle.TinyHead, path: Path) -> None:
    target = load(backend, tiny.checkpoint("llama"), FLOAT32)
    model = with_head(target, loaded(backend, path, target, FLOAT32))
    text, theirs = DraftedText(backend, model, [LENGTH], record=False), tiny_eagle.Reference(head, tables()[0])
    fused = theirs.fused(streams(head))
    assert_near(text.fused, fused)
    rows = theirs.rows(TOKENS[1:], fused[:-1])
    own = text.rows(TOKENS[1:], 1, text.fused[:-1]).copy()
    assert_near(own, rows)
    assert_near(text.logits(own), theirs.logits(rows))
    (drafts, chained), (their_drafts, their_chained) = text.chain(), theirs.chain(TOKENS, fused[:-1], DEPTH)
    assert drafts == their_drafts
    assert_near(chained, their_chained)


def assert_near(own: F32, theirs: Any) -> None:
    want = theirs.numpy()
    assert own.shape == want.shape
    assert np.abs(own - want).max() < 1e-3 * np.abs(want).max()


@forms
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_is_the_published_one(backend: Backend, tmp_path: Path, form: str, kind: str) -> None:
    """The keys and values of the target's pass, its rows, the logits, and greedy drafts."""
    head = make_head(**KINDS[kind])
    check(backend, head, tiny_eagle.save(head, form, tmp_path / "head"))


@pytest.mark.parametrize("form", ["specforge", "speculators"])
@pytest.mark.parametrize("kind", IN_FOLDERS)
def test_what_only_folders_have(backend: Backend, tmp_path: Path, form: str, kind: str) -> None:
    head = make_head(**IN_FOLDERS[kind])
    check(backend, head, tiny_eagle.save(head, form, tmp_path / "head"))


def test_one_row_reads_what_the_pass_wrote(backend: Backend, tmp_path: Path) -> None:
    head, target = make_head(), load(backend, tiny.checkpoint("llama"), FLOAT32)
    model = with_head(target, loaded(backend, tiny_eagle.save(head, "specforge", tmp_path), target, FLOAT32))
    text = DraftedText(backend, model, [LENGTH], record=False)
    last = text.rows(TOKENS[-1:], LENGTH - 1, text.fused[-2:-1]).copy()
    assert np.abs(last - text.rows(TOKENS[1:], 1, text.fused[:-1])[-1:]).max() < 1e-5


def test_chunks_do_not_change_what_is_kept(backend: Backend, tmp_path: Path) -> None:
    target = tiny.make_model(backend, "llama")
    model = with_head(target, loaded(backend, tiny_eagle.save(make_head(), "speculators", tmp_path), target))
    whole, parts = DraftedText(backend, model, [LENGTH]), DraftedText(backend, model, [1, 20, 1, 1, 30, 7])
    assert whole.cache.tobytes() == parts.cache.tobytes()
    assert whole.fused.tobytes() == parts.fused.tobytes()
    written = whole.cache.copy()
    whole.rows(TOKENS[1:], 1, whole.fused[:-1])
    assert whole.cache.tobytes() == written.tobytes(), "guessing writes what following wrote"


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt_oss", "olmo2", "qwen3_5"])
def test_the_target_is_the_same_with_and_without(backend: Backend, tmp_path: Path, name: str) -> None:
    """Also for targets whose layers norm what they add, have windows, or keep states."""
    target = tiny.make_model(backend, name)
    path = tiny_eagle.save(make_head(name), "speculators", tmp_path)
    model = with_head(target, loaded(backend, path, target))
    logits = [tiny.all_logits(tiny.make_runner(backend, one), TOKENS, [20, 40]) for one in (target, model)]
    assert logits[0].tobytes() == logits[1].tobytes()
    assert model.without_drafting().config == target.without_drafting().config


def test_a_copy_of_the_targets_table_is_not_kept(backend: Backend, tmp_path: Path) -> None:
    target, head = tiny.make_model(backend, "llama"), make_head()
    copied = {**head.tensors, "embed_tokens.weight": tables()[0]}
    for tensors, is_own in ((copied, False), (make_head(own_table=True).tensors, True)):
        path = tiny_eagle.save(dataclasses.replace(head, tensors=tensors), "specforge", tmp_path)
        assert (loaded(backend, path, target).layer.embeddings is not target.embeddings) == is_own


@pytest.mark.parametrize("form", ["specforge", "speculators"])
def test_a_head_for_another_model_is_refused(backend: Backend, tmp_path: Path, form: str) -> None:
    target = tiny.make_model(backend, "llama")
    other = np.zeros((tiny.VOCAB, 64), np.float32)
    with pytest.raises(MetadataError, match="reads 3 rows of 64 lanes, and the model's have 96"):
        loaded(backend, tiny_eagle.save(tiny_eagle.make_head(other, other), form, tmp_path), target)
    larger = np.zeros((300, 96), np.float32)
    with pytest.raises(MetadataError, match="knows 300 tokens, and the model 256"):
        loaded(backend, tiny_eagle.save(tiny_eagle.make_head(larger, larger), form, tmp_path), target)
    deeper = make_head(layers=(2, 5, 9))
    with pytest.raises(MetadataError, match="reads the layers 2, 5, 9 of 3"):
        loaded(backend, tiny_eagle.save(deeper, form, tmp_path), target)


def changed(head: tiny_eagle.TinyHead, **tensors: F32 | None) -> tiny_eagle.TinyHead:
    mixed = {**head.tensors, **{name.replace("__", "."): value for name, value in tensors.items()}}
    return dataclasses.replace(head, tensors={name: value for name, value in mixed.items() if value is not None})


def test_a_damaged_head_is_refused(backend: Backend, tmp_path: Path) -> None:
    target, head = tiny.make_model(backend, "llama"), make_head()
    for wrong, message in (
        (changed(head, fc__weight=None), "lacks fc.weight"),
        (changed(head, norm__weight=np.ones(95, np.float32)), "output_norm.weight has the shape"),
        (changed(head, lm_head__weight=np.zeros((9, 96), np.float32)), "makes 9 logits"),
        (dataclasses.replace(head, ids=head.ids + 2), "beyond the model's 256"),
    ):
        with pytest.raises(MetadataError, match=message):
            loaded(backend, tiny_eagle.save(wrong, "specforge", tmp_path, hidden_size=96), target)


def test_other_kinds_of_heads_are_refused(tmp_path: Path) -> None:
    for changes, message in (
        ({"speculators_model_type": "mlp"}, "speculators_model_type is 'mlp'"),
        ({"num_hidden_layers": 2}, "no head of one layer"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "no head of one layer"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps says 'small'"),
    ):
        with pytest.raises(MetadataError, match=message):
            open_eagle(tiny_eagle.save(make_head(), "specforge", tmp_path, **changes))


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    folder = tiny_eagle.save(make_head(), "specforge", tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match="is a pickle"):
        open_eagle(folder)


def test_a_target_without_a_single_stream_is_refused(backend: Backend, tmp_path: Path) -> None:
    target = tiny.make_model(backend, "gemma3n")
    with pytest.raises(MetadataError, match="no single stream"):
        loaded(backend, tiny_eagle.save(make_head("gemma3n"), "speculators", tmp_path), target)
