"""Prices, what a request may cost, and budgets: in a day no more than a budget is held and spent."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from surefoot.front import spending as spending_module
from surefoot.front.prices import TEMPLATE_TOKENS, MostTokens, Price, millionths, most_tokens
from surefoot.front.spending import DAY_S, MOST_KEYS, NAME, Book, Hold, UpstreamSpending
from surefoot.front.usage import TokenUsage

TOKENS = st.integers(0, 1 << 21)
PRICES = st.builds(Price, st.floats(0, 1e6), st.floats(0, 1e6))
KEYS = st.sampled_from(["a", "b"])
BUDGET = 1000


class Budgets(RuleBasedStateMachine):
    """Holds and settlements in any order, days that pass in between, clocks that go back, and restarts."""

    @initialize()
    def begin(self) -> None:
        self.folder = TemporaryDirectory()
        self.now = 20_000 * DAY_S
        self.open_holds: list[Hold] = []
        self.spent: Counter[tuple[int, str]] = Counter()  # by day and key: what is held or settled
        self.restart()

    @rule()
    def restart(self) -> None:
        """As after `kill -9`: what was held stays spent."""
        self.spending = UpstreamSpending(Path(self.folder.name) / NAME, lambda: self.now)

    @rule(seconds=st.integers(-DAY_S, 2 * DAY_S))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(key=KEYS, amount=st.integers(0, BUDGET + 1))
    def hold(self, key: str, amount: int) -> None:
        left = self.spending.left(key, BUDGET)
        hold = self.spending.hold(key, BUDGET, amount)
        assert (hold is not None) == (amount <= left)
        if hold is not None:
            self.open_holds.append(hold)
            self.spent[hold.day, key] += amount

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        if self.open_holds:
            hold = self.open_holds.pop(data.draw(st.integers(0, len(self.open_holds) - 1)))
            cost = data.draw(st.integers(0, hold.amount))
            self.spending.settle(hold, cost)
            if hold.day == self.spending._book.on(self.spending._today()).day:
                self.spent[hold.day, hold.key] += cost - hold.amount

    @invariant()
    def no_budget_is_exceeded(self) -> None:
        assert all(0 <= amount <= BUDGET for amount in self.spent.values())
        day = self.spending._book.on(self.spending._today()).day
        for key in ("a", "b"):
            assert self.spending.left(key, BUDGET) == BUDGET - self.spent[day, key]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestBudgets = Budgets.TestCase
TestBudgets.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


def test_a_dearer_answer_than_was_asked_for_counts_as_it_is(tmp_path: Path) -> None:
    spending = UpstreamSpending(tmp_path / NAME, lambda: 0.0)
    hold = spending.hold("a", 10, 10)
    assert hold is not None
    spending.settle(hold, 15)
    assert spending.left("a", 12) == 0
    assert spending.left("a", 16) == 1


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"\xff", None])
def test_a_damaged_file_is_an_error(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / NAME
    UpstreamSpending(path, lambda: 0.0).hold("a", 9, 5)
    good = path.read_bytes()
    path.write_bytes(good.replace(b"5", b"4") if damage is None else damage)
    with pytest.raises(ValueError, match="every budget is spent"):
        UpstreamSpending(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        UpstreamSpending(path)


def test_what_cannot_be_written_is_not_spent(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    spending = UpstreamSpending(folder / NAME, lambda: 0.0)
    hold = spending.hold("a", 10, 4)
    assert hold is not None
    folder.rename(tmp_path / "gone")
    assert spending.hold("a", 10, 4) is None
    spending.settle(hold, 1)
    assert spending.left("a", 10) == 6


def test_the_file_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending_module, "MOST_KEYS", 2)
    spending = UpstreamSpending(tmp_path / NAME, lambda: 0.0)
    assert [spending.hold(key, 9, 1) is not None for key in "abca"] == [True, True, False, True]
    largest = Book(1, {f"{number:08x}": 10**15 for number in range(MOST_KEYS)})
    assert len(largest.to_bytes()) < spending_module.MOST_FILE_BYTES


# ---- what it may cost ----


@given(PRICES, TOKENS, TOKENS, TOKENS, TOKENS)
def test_no_settled_price_is_above_the_most(price: Price, prompt: int, answer: int, more: int, longer: int) -> None:
    most = price.most(MostTokens(prompt + more, answer + longer + 1))
    assert most is not None
    assert 0 <= price.of(TokenUsage(prompt, answer)) <= most


def test_the_most_needs_a_limit() -> None:
    price = Price(2.0, 10.0)
    assert price.most(MostTokens(100, None)) is None
    assert price.most(None) is None
    assert price.most(MostTokens(100, 50, num_answers=3)) == 200 + 1500
    assert Price(2.0, 10.0, longest_answer=20).most(MostTokens(100, None, num_answers=2)) == 200 + 400
    assert Price(0.1, 0.0).of(TokenUsage(1, 5)) == 1, "rounded up"
    assert millionths(0.29) == 290_000


SAYS = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("more", "most"),
    [
        ({}, MostTokens(9 + TEMPLATE_TOKENS, None)),
        ({"max_tokens": 5, "max_completion_tokens": 7, "n": 2}, MostTokens(9 + TEMPLATE_TOKENS, 7, 2)),
        ({"max_tokens": None, "n": None, "tools": None}, MostTokens(9 + TEMPLATE_TOKENS, None)),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
            MostTokens(9 + TEMPLATE_TOKENS, None),
        ),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
            MostTokens(9 + TEMPLATE_TOKENS, None),
        ),
        ({"tools": [{"type": "function"}]}, MostTokens(9 + TEMPLATE_TOKENS, None)),
        *(({"max_tokens": limit}, None) for limit in (0, -1, True, 5.0, "5", 1 << 31, 10**400)),
        *(({"n": number}, None) for number in (0, -1, "2")),
        ({"messages": [SAYS, {"role": "user", "content": [{"type": "image_url"}]}]}, None),
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, None),
        ({"messages": [{"role": "user", "content": {}}]}, None),
        ({"messages": ["Hi"]}, None),
        ({"messages": "Hi"}, None),
        ({"tools": [{"type": "web_search"}]}, None),
    ],
)
def test_most_tokens(more: dict[str, Any], most: MostTokens | None) -> None:
    assert most_tokens({"messages": [SAYS], **more}, 9) == most
