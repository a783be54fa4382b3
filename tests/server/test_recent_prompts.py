"""Where a prompt leaves its user's earlier ones."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot.server import recent_prompts
from surefoot.server.recent_prompts import AFTER, BEFORE, NUM_KEPT, SPAN, RecentPrompts
from tests.server.access.sharing import quick_key
from tests.server.process import Server
from tests.smollm2 import find_file


def test_a_prompt_parts_from_the_nearest_one_of_its_user() -> None:
    recent, rules = RecentPrompts(), list(range(100))
    assert recent.add("ann", [*rules, 500, *range(200, 300)]) is None
    assert recent.add("bob", [*rules, 600]) is None, "of other users nothing is told"
    assert recent.add("ann", [9, 9, 9]) is not None
    departure = recent.add("ann", [*rules, 700, 701])
    assert departure is not None
    assert departure.common_tokens == 100
    assert departure.before == (*rules[-BEFORE:], 500, *range(200, 200 + AFTER - 1))
    assert departure.now == (*rules[-BEFORE:], 700, 701)


def test_what_moved_is_counted() -> None:
    recent, rules, tools = RecentPrompts(), list(range(100)), list(range(1000, 1400))
    recent.add("ann", [*rules, 7, *tools, 8, 9])
    for prompt, repeated in (
        ([*rules, 5, 6, *tools, 4], 400),  # something else before the tools
        ([*tools, 3], 400),
        ([*rules, 7, *tools[:200], 2, *tools[200:]], 200),
        ([*rules, *range(2000, 2400)], 0),
        ([*rules, 1, *tools[: SPAN - 1], 1], 0),
    ):
        departure = RecentPrompts.add(deepcopy(recent), "ann", prompt)
        assert departure is not None
        assert departure.repeated_tokens == repeated


def test_what_goes_on_parts_from_nothing() -> None:
    recent = RecentPrompts()
    for length in (10, 10, 30, 20, 50):  # the same again, longer, the beginning alone, longer
        assert recent.add("", range(length)) is None
    for number in range(NUM_KEPT - 1):
        assert recent.add("", [1000 + number]) is not None
    assert recent.add("", range(60)) is None, "turns of one conversation are one prompt"


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_prompts, "MOST_TOKENS", 100)
    recent = RecentPrompts()
    recent.add("ann", range(60))
    recent.add("bob", range(60))
    assert recent.add("ann", [0, 1, 5]) is None, "ann's prompt gave way"
    assert recent.add("bob", [0, 1, 5]) is not None
    recent.add("eve", range(500))
    assert recent.add("eve", [0, 1, 5]) is None, "too long to be kept"


def test_usage_tells_the_owner_of_a_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    ann, bob = quick_key(file, "ann"), quick_key(file, "bob")
    server = Server(find_file(), "--max-context", "1024", "--keys", str(file))

    def usage(key: str, folder: str, route: str) -> dict[str, Any]:
        text = "You help with a project. " * 20 + f"The folder is {folder}. Be short."
        messages = [{"role": "system", "content": text}, {"role": "user", "content": "Hello"}]
        body: dict[str, Any] = {"model": "small", "max_tokens": 2, "messages": messages}
        if route == "/responses":
            body = {"model": "small", "max_output_tokens": 2, "input": messages}
        reply = httpx.post(server.url + route, json=body, headers={"x-api-key": key}, timeout=300)
        told: dict[str, Any] = reply.json()["usage"]
        return told

    try:
        assert "prefix" not in usage(ann, "/home/green", "/chat/completions")
        for route in ("/chat/completions", "/messages", "/responses"):
            assert "prefix" not in usage(ann, "/home/green", route)
            prefix = usage(ann, f"/home/{route[1]}", route)["prefix"]
            assert prefix["common_tokens"] > 100
            assert "green" in prefix["before"]
            assert "green" not in prefix["now"]
            assert f"/{route[1]}." in prefix["now"]
        assert "prefix" not in usage(bob, "/home/blue", "/chat/completions")
    finally:
        server.stop()
