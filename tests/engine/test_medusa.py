"""Medusa heads never change answers: greedy and sampled, several samples, in mixed batches, at several depths."""

import pytest

from surefoot.formats import SERVED
from surefoot.models import MedusaHeads, load_medusa
from surefoot.runner import MedusaGuesser, StateDrafter
from surefoot.weights import open_medusa
from tests.engine import drafting

tiny = pytest.importorskip("tests.models.tiny")
tiny_medusa = pytest.importorskip("tests.models.tiny_medusa")


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> MedusaHeads:
    output = tiny.reference("llama").lm_head.weight.detach().numpy()
    path = tiny_medusa.save(tiny_medusa.make_heads(output), "medusa", tmp_path_factory.mktemp("heads"))
    target = tiny.make_model(drafting.backend(), "llama")
    return load_medusa(drafting.backend(), open_medusa(path), target, SERVED)


@pytest.mark.parametrize(("depth", "lookup"), [(1, False), (5, False), (5, True)])
def test_answers_are_those_without_drafts(heads: MedusaHeads, depth: int, lookup: bool) -> None:
    model, backend = tiny.make_model(drafting.backend(), "llama"), drafting.backend()
    want, _ = drafting.run(drafting.opened(model, 0), drafting.requests())
    engine = drafting.opened(
        model, depth, lookup=lookup, make=lambda _: StateDrafter(backend, MedusaGuesser(backend, heads))
    )
    got, usages = drafting.run(engine, drafting.requests())
    assert got == want
    drafted, accepted = (sum(getattr(usage, name) for usage in usages) for name in ("num_drafted", "num_accepted"))
    assert 0 < accepted < drafted
