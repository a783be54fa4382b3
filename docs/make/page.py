"""docs/assets/page-*.png: pictures of the page at `/`, taken from a real server.

python docs/make/page.py MODEL.gguf

Each view is taken at a desk's and at a phone's width, light and dark. Needs Chromium and the extra "dev".
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

ASSETS = Path(__file__).parents[1] / "assets"
WIDTHS = {1280: 960, 390: 844}
THEMES = ("light", "dark")
PATIENCE_MS = 600_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
EARLIER = ("Which port does PostgreSQL use?", "Translate to French: the train is late")
QUESTION = (
    "Explain binary search: its steps as a numbered list, its running time as a formula in LaTeX between dollar signs, "
    "a Markdown table that compares it with linear search, and a short Python function. Be brief."
)
LOAD = "Write a long story about a lighthouse."
NUM_USERS = 3  # who ask while the server's view is taken


@contextmanager
def served(model: str) -> Iterator[str]:
    """A server's address."""
    with tempfile.TemporaryDirectory() as folder:
        command = [shutil.which("surefoot") or "surefoot", "serve", model, "--port", "0", "--state-dir", folder]
        process = subprocess.Popen([*command, "--cache-dir", "none"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            ready = next(found for line in process.stdout if (found := re.search(r"ready\s+(http://\S+)/v1", line)))
            yield ready[1]
        finally:
            process.terminate()
            process.wait()


def ask(page: Page, question: str) -> None:
    page.click("#new")
    page.fill("#question", question)
    page.press("#question", "Enter")
    page.wait_for_selector("text=Same answer?")


@contextmanager
def load(root: str) -> Iterator[None]:
    """Others ask."""
    body = {"messages": [{"role": "user", "content": LOAD}], "max_tokens": 400}
    with ThreadPoolExecutor(NUM_USERS) as users:
        for _ in range(NUM_USERS):
            users.submit(httpx.post, f"{root}/v1/chat/completions", json=body, timeout=PATIENCE_MS / 1000)
        yield


def take(page: Page, view: str) -> None:
    for width, height in WIDTHS.items():
        for theme in THEMES:
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(1500)  # the chart is drawn with the next figures
            if view == "chat":
                page.locator(".message.user").last.scroll_into_view_if_needed()
            page.screenshot(path=ASSETS / f"page-{view}-{width}-{theme}.png")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    model = parser.parse_args().model
    with served(model) as root, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        page.goto(root)
        page.click("text=Settings")
        page.fill("#temperature", "0")
        page.fill("#max-tokens", "12")
        for question in EARLIER:
            ask(page, question)
        page.fill("#max-tokens", "450")
        page.click("text=Settings")
        ask(page, QUESTION)
        page.click("text=Same answer?")
        page.wait_for_selector("text=same bits")
        page.click("text=Details")
        take(page, "chat")
        page.click("#show-server")
        with load(root):
            page.wait_for_selector("#requests td:has-text('answers')")
            page.wait_for_timeout(20_000)  # the chart fills
            take(page, "server")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
