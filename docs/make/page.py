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
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import httpx
from playwright.sync_api import Page, sync_playwright

from surefoot.server import KeyEntry, add_key, hash_of, make_key

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
ADMIN, *USERS = ("ops", *(f"user-{number:02}" for number in range(1, 51)))  # who ask while the server's view is taken
LOAD_MS = 60_000  # for the charts


@contextmanager
def served(model: str, keys: Mapping[str, str]) -> Iterator[str]:
    """A server's address. keys: by user."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "keys.toml")
        for user, key in keys.items():
            add_key(file, KeyEntry(user=user, hash=hash_of(key), admin=user == ADMIN))
        command = [shutil.which("surefoot") or "surefoot", "serve", model, "--port", "0", "--state-dir", folder]
        command += ["--cache-dir", f"{folder}/cache", "--keys", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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
def load(root: str, keys: Mapping[str, str]) -> Iterator[None]:
    """Every user asks, again and again."""
    is_over = Event()

    def use(number: int, key: str) -> None:
        text = {"role": "user", "content": f"{LOAD} It has {number} steps."}
        body = {"messages": [text], "max_tokens": 40 + 5 * number}
        headers = {"Authorization": f"Bearer {key}"}
        while not is_over.wait(number % 7):  # seconds that the user reads
            httpx.post(f"{root}/v1/chat/completions", json=body, headers=headers, timeout=PATIENCE_MS / 1000)

    with ThreadPoolExecutor(len(USERS)) as users:
        for number, user in enumerate(USERS, 1):
            users.submit(use, number, keys[user])
        try:
            yield
        finally:
            is_over.set()


def take(page: Page, view: str) -> None:
    for width, height in WIDTHS.items():
        for theme in THEMES:
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(6000)  # the charts are drawn with the next points
            if view == "chat":
                page.locator(".message.user").last.scroll_into_view_if_needed()
            page.screenshot(path=ASSETS / f"page-{view}-{width}-{theme}.png")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    model = parser.parse_args().model
    keys = {user: make_key() for user in (ADMIN, *USERS)}
    with served(model, keys) as root, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        page.goto(root)
        page.fill("#key", keys[ADMIN])
        page.click("#login button")
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
        with load(root, keys):
            page.wait_for_selector("#requests td:has-text('answers')")
            page.wait_for_timeout(LOAD_MS)
            take(page, "server")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
