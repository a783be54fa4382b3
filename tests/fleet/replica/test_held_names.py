"""What a server tells gateways of the prompts that it holds."""

import random

import pytest

from surefoot.fleet.replica import held_names
from surefoot.fleet.replica.held_names import HeldNames


def digests(*numbers: int) -> list[bytes]:
    return [bytes([number]) for number in numbers]


def test_changes_since_the_last_report() -> None:
    stored = set(digests(*range(10)))
    held = HeldNames(stored.__contains__)
    assert held.changes(0).model_dump() == {"number": 0, "is_whole": True, "added": [], "removed": []}
    held.note([11, 12, 13, 14], digests(1, 2))  # twice as much text as tokens: its first block ends no block
    first = held.changes(0)
    assert (first.is_whole, sorted(first.added)) == (True, [12, 13, 14])
    held.note([11, 12, 13, 14, 15], digests(1, 2, 3, 4, 5))
    second = held.changes(first.number)
    assert (second.is_whole, second.added, second.removed) == (False, [11, 15], [])
    stored.discard(bytes([5]))
    third = held.changes(second.number)
    assert (third.added, third.removed) == ([], [15])
    assert held.changes(third.number).model_dump() == {
        "number": third.number,
        "is_whole": False,
        "added": [],
        "removed": [],
    }
    assert held.changes(99).is_whole  # another process's number


def test_gateways_follow_whatever_they_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a gateway that keeps a set, over random notes, drops and pauses."""
    monkeypatch.setattr(held_names, "MOST_CHANGES", 40)
    monkeypatch.setattr(held_names, "MOST_NAMES", 60)
    rng, stored = random.Random(1), set(digests(*range(256)))
    held, known, number = HeldNames(stored.__contains__), set[int](), 0
    for _ in range(300):
        for _ in range(rng.randrange(4)):
            start = rng.randrange(200)
            held.note(range(start, start + 20), digests(*range(start, start + 20)))
        stored ^= set(digests(rng.randrange(256)))
        report = held.changes(number)
        known = set(report.added) | (set() if report.is_whole else known - set(report.removed))
        number = report.number
        assert known == set(held.changes(0).added)
        assert known <= {name for name in range(220) if bytes([name]) in stored}
        assert len(known) <= 60
