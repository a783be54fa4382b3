"""Driving the page by a real Chromium."""

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.server.access.sharing import quick_key
from tests.server.process import Server
from tests.stories import stories_gguf

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
PHONE = {"width": 390, "height": 800}


class Served:
    """A server with keys. stories260K has no chat template of its own, so it gets one."""

    def __init__(self, folder: Path) -> None:
        keys = folder / "keys.toml"
        self.key, self.admin = quick_key(keys, "alice"), quick_key(keys, "root", admin=True)
        words = ("--keys", str(keys), "--chat-template", "vicuna", "--max-running", "1")  # so that others wait
        self.server = Server(stories_gguf(), *words)


def log_in(page: Page, root: str, key: str) -> None:
    page.goto(f"{root}/")
    page.fill("#key", key)
    page.click("#login button")
    page.wait_for_selector("#question", state="visible")


def ask(page: Page, text: str, max_tokens: int = 20) -> None:
    page.locator("details:has(#max-tokens)").evaluate("details => details.open = true")
    page.fill("#max-tokens", str(max_tokens))
    page.fill("#question", text)
    page.press("#question", "Enter")


def wait_for_answer(page: Page) -> str:
    page.wait_for_selector(".message.assistant:last-child button:has-text('Same answer?')")
    return page.locator(".message.assistant:last-child").inner_text()
