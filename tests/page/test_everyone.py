"""The page for everyone: by the keyboard alone, over a slow link, through a restart of the server."""

from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.page.driving import Served, ask, log_in, needs_browser, wait_for_answer
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S

SLOW = {"offline": False, "latency": 400, "downloadThroughput": 50_000, "uploadThroughput": 20_000}  # bytes a second
MOST_TABS = 40


def tab_to(page: Page, selector: str, text: str = "", key: str = "Tab") -> None:
    """Press a key until an element that fits has the focus."""
    fits = "([selector, text], at = document.activeElement) => at.matches(selector) && at.textContent.includes(text)"
    for _ in range(MOST_TABS):
        page.keyboard.press(key)
        if page.evaluate(fits, [selector, text]):
            return
    raise AssertionError(f"no way by {key} to {selector}")


@needs_browser
def test_the_keyboard_is_enough(page: Page, served: Served) -> None:
    page.goto(f"{served.server.root}/")
    page.wait_for_selector("#key:focus")
    page.keyboard.type(served.admin)
    page.keyboard.press("Enter")
    page.wait_for_selector("#question:focus")
    tab_to(page, "details:has(#max-tokens) > summary")
    page.keyboard.press("Enter")
    tab_to(page, "#max-tokens")
    page.keyboard.type("5")
    page.focus("#question")
    page.keyboard.type("Once upon a time")
    page.keyboard.press("Enter")
    wait_for_answer(page)
    tab_to(page, "button", "Same answer?", key="Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant")).to_contain_text("same bits: 5 tokens", timeout=PATIENCE_S * 1000)
    tab_to(page, "#show-server", key="Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answers")
    tab_to(page, ".spans button:last-child")
    page.keyboard.press("Space")
    assert page.locator(".spans [aria-pressed='true']").inner_text() == "Week"
    tab_to(page, "#all-keys > summary")
    page.keyboard.press("Enter")
    page.wait_for_selector("#keys-table td:has-text('root')")


@needs_browser
def test_a_slow_link_is_enough(browser: Browser, served: Served) -> None:
    """50 KB a second, 400 ms of delay."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    link = context.new_cdp_session(page)
    link.send("Network.enable")
    link.send("Network.emulateNetworkConditions", SLOW)
    log_in(page, served.server.root, served.key)
    ask(page, "Once upon a time")
    wait_for_answer(page)
    context.close()


@needs_browser
def test_it_goes_on_after_a_restart(page: Page, tmp_path: Path) -> None:
    served = Served(tmp_path)
    port = served.server.root.rpartition(":")[2]
    log_in(page, served.server.root, served.admin)
    ask(page, "One")
    first = wait_for_answer(page)
    page.click("#show-server")
    page.wait_for_selector("#answers")
    served.server.stop()
    expect(page.locator("#server-note")).to_contain_text("trying again", timeout=PATIENCE_S * 1000)
    words = ("--keys", str(tmp_path / "keys.toml"), "--chat-template", "vicuna", "--port", port)
    again = Server(stories_gguf(), *words)
    try:
        expect(page.locator("#server-note")).to_have_text("", timeout=PATIENCE_S * 1000)
        page.click("#show-chat")
        assert first.splitlines()[0] in page.locator(".message.assistant").inner_text()
        ask(page, "Two")
        expect(page.locator("button:has-text('Same answer?')")).to_have_count(2, timeout=PATIENCE_S * 1000)
    finally:
        again.stop()
