"""Whatever a model's files contain, it loads or is refused with a message; no hang, no large allocation.

The long form is `python -m tests.weights.fuzz --minutes 10`.
"""

from pathlib import Path

import pytest

from tests.weights import fuzz

SECONDS = 20.0
FIRST_SEED = 1


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[reference]'")
    return fuzz.make_bases(tmp_path_factory.mktemp("bases"), fuzz.SHORT)


def test_mutated_models_load_or_are_refused(bases: list[Path]) -> None:
    count, faults = fuzz.run(bases, FIRST_SEED, SECONDS)
    assert count > 0
    assert faults == []


def test_the_rule_finds_what_breaks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that raises an error that no command reports is a fault."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(fuzz, "LLM", broken)
    assert "ZeroDivisionError" in fuzz.try_load(tmp_path, tmp_path)
