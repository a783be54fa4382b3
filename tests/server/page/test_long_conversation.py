"""A conversation of 500 messages scrolls and types without a frame that takes long. By night, since it is timed."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.server.page.driving import Served, log_in, needs_browser

pytestmark = [needs_browser, pytest.mark.nightly]
NUM_MESSAGES = 500
LONGEST_MS = 50.0
CASES = (Path(__file__).parents[3] / "web/tests/cases.md").read_text().split("=== ")[1:]
WATCH = """() => {
  window.frames_ms = [];
  let last = performance.now();
  const frame = (now) => {
    window.frames_ms.push(now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""


def export() -> str:
    request = {"model": "small", "messages": []}
    messages: list[dict[str, Any]] = []
    for number in range(NUM_MESSAGES):
        text = "\n\n".join(CASES[(number + step) % len(CASES)].partition("\n")[2] for step in range(3))
        place = {"id": str(number), "parent": str(number - 1) if number else None, "order": number, "content": text}
        if number % 2:
            answer = {"reasoning": "", "toolCalls": [], "logprobs": [], "state": "done", "request": request}
            messages.append({**place, **answer, "role": "assistant"})
        else:
            messages.append({**place, "role": "user", "attachments": []})
    conversation = {"title": "Long", "last": str(NUM_MESSAGES - 1)}
    conversations = [{"conversation": conversation, "messages": messages}]
    return json.dumps({"format": "surefoot-conversations", "version": 1, "conversations": conversations})


def longest_ms(page: Page) -> float:
    longest: float = page.evaluate("Math.max(...window.frames_ms.slice(1))")
    return longest


def test_it_scrolls_and_types_smoothly(page: Page, served: Served, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    log_in(page, served.server.root, served.key)
    (tmp_path / "long.json").write_text(export())
    page.set_input_files("input[accept*=json]", tmp_path / "long.json")
    page.click(".entry:has-text('Long')")
    page.wait_for_selector(".message .hljs-keyword")
    page.wait_for_timeout(1000)
    page.evaluate(WATCH)
    page.mouse.move(800, 400)
    while page.locator(".message").count() < NUM_MESSAGES:
        page.mouse.wheel(0, -700)
        page.wait_for_timeout(20)
    scrolling = longest_ms(page)
    page.evaluate("window.frames_ms = []")
    page.locator("#question").press_sequentially("This is typed below five hundred messages. " * 3)
    typing = longest_ms(page)
    print(f"longest frame: {scrolling:.0f} ms while scrolling, {typing:.0f} ms while typing")
    assert max(scrolling, typing) <= LONGEST_MS
