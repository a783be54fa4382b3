import hashlib

from surefoot.models import FAMILIES
from surefoot.weights.hub_id import parse_id
from surefoot.weights.recommended import recommended_models, resolve_name
from tests import smollm2


def test_every_source_names_one_gguf_file() -> None:
    for model in recommended_models():
        source = parse_id(model.source)
        assert source is not None
        assert source.tag or source.file, model.name
        assert model.bytes > 50e6
        assert model.licence
        assert model.purpose


def test_names_are_unique_and_have_a_size() -> None:
    names = [model.name for model in recommended_models()]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and name.count(":") == 1 for name in names)


def test_a_name_without_a_size_is_the_first_of_its_family() -> None:
    first = {}
    for model in recommended_models():
        assert resolve_name(model.name.upper()) == model.source
        first.setdefault(model.name.partition(":")[0], model.source)
    assert {family: resolve_name(family) for family in first} == first
    assert resolve_name("qwen3:5b") is None
    assert "qwen3" in FAMILIES


def test_the_file_that_was_run_is_the_one_that_tests_run() -> None:
    (model,) = [model for model in recommended_models() if model.name == "smollm2:135m"]
    assert hashlib.sha256(smollm2.find_file().read_bytes()).hexdigest() == model.ran
