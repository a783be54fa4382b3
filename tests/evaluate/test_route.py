"""What a cascade costs and how often it is right."""

import json
from pathlib import Path

import pytest

from surefoot.evaluate.route import (
    MATCHES,
    NEVER,
    AnsweredExample,
    calibrate,
    cascade,
    choose_bound,
    large_alone,
    read_examples,
)
from surefoot.evaluate.windows import TextError
from tests.cli.process import run
from tests.stories import stories_gguf

# The small model is right where it is sure, but for one example; the large one is right but for one.
FOUND = ((True, -0.1), (True, -0.2), (False, -0.3), (False, -2.0))
SMALL = [AnsweredExample(right, logprob, 1.0, 0.5) for right, logprob in FOUND]
LARGE = [AnsweredExample(right, 0.0, 10.0, 9.0) for right in (True, True, True, False)]


def test_a_cascade_is_counted_by_who_answers() -> None:
    found = cascade(SMALL, LARGE, -0.2)
    assert (found.small_share, found.quality) == (0.5, 0.75)
    assert found.seconds == pytest.approx((1 + 1 + 2 * (0.5 + 10)) / 4)
    share = (found.seconds - 1) / 9  # of requests to the large model at random
    assert found.random_quality == pytest.approx(0.5 * (1 - share) + 0.75 * share)


def test_a_cascade_that_never_stays_costs_more_than_the_large_model() -> None:
    found, large = cascade(SMALL, LARGE, NEVER), large_alone(SMALL, LARGE)
    assert (found.quality, found.seconds) == (large.quality, large.seconds + 0.5)


@pytest.mark.parametrize(("most_lost", "bound"), [(0.0, -0.2), (0.25, -2.0), (1.0, -2.0)])
def test_the_cheapest_bound_that_is_good_enough(most_lost: float, bound: float) -> None:
    assert choose_bound(SMALL, LARGE, most_lost) == pytest.approx(bound, abs=2e-4)


def test_a_bound_is_judged_on_other_examples() -> None:
    small = [
        AnsweredExample(True, -0.1, 1.0, 0.5),
        AnsweredExample(False, -0.1, 1.0, 0.5),
    ] * 4  # right in one half, wrong in the other
    found = calibrate(small, [AnsweredExample(True, 0.0, 10.0, 9.0)] * 8, 0.0)
    assert (found.chosen.small_share, found.chosen.quality) == (1.0, 0.0)
    assert (found.small.quality, found.large.quality, found.num_examples) == (0.5, 1.0, 8)
    assert not found.pays
    assert calibrate(SMALL * 2, LARGE * 2, 0.5).pays


@pytest.mark.parametrize(
    ("match", "said", "answer", "is_right"),
    [
        ("contains", "It is in Oslo.", "oslo", True),
        ("exact", " yes\n", "yes", True),
        ("exact", "yes.", "yes", False),
        ("number", "17 + 1,025 = 1,042.", "1042", True),
        ("number", "-3", "3", False),
        ("number", "none", "3", False),
        ("json", '```json\n{"b": 1, "a": [2]}\n```', '{"a": [2], "b": 1}', True),
        ("json", "no object", "{}", False),
    ],
)
def test_what_counts_as_right(match: str, said: str, answer: str, is_right: bool) -> None:
    assert MATCHES[match](said, answer) is is_right


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"prompt": "a"}', "5"])
def test_faults_of_examples_are_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text(f'{{"prompt": "a", "answer": 5}}\n\n{line}\n')
    with pytest.raises(TextError, match="line 3: give an object"):
        read_examples(path)


def test_command(tmp_path: Path) -> None:
    """The same model twice: nothing is lost by the small one."""
    path = tmp_path / "examples.jsonl"
    lines = [json.dumps({"prompt": f"Once upon a {word}", "answer": "a"}) for word in "abcdef"]
    path.write_text("\n".join(lines))
    model = str(stories_gguf())
    words = ["eval", "route", model, model, "--examples", str(path), "--max-tokens", "8", "--tokens", "4"]
    done = run(*words)
    assert "small alone" in done.stdout, done.stderr
    assert "sure = {tokens = 4, mean-logprob = -" in done.stdout or "No bound pays" in done.stdout
    found = json.loads(run(*words, "--json").stdout)
    assert found["small"]["quality"] == found["large"]["quality"]
    assert len(found["curve"]) > 2
