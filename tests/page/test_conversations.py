"""Conversations that the browser keeps: found again, renamed, pinned, deleted, exported and imported; tabs agree."""

import json
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.page.driving import Served, ask, log_in, needs_browser, wait_for_answer
from tests.waiting import PATIENCE_S

pytestmark = needs_browser
PATIENCE_MS = PATIENCE_S * 1000


def talk(page: Page, *questions: str) -> None:
    """A conversation about each question."""
    for question in questions:
        page.click("#new")
        ask(page, question, max_tokens=4)
        wait_for_answer(page)


def titles(page: Page) -> list[str]:
    return page.locator("#conversations .entry").all_inner_texts()


def choose(page: Page, title: str, action: str) -> None:
    page.click(f"[aria-label='Actions for “{title}”']")
    page.click(f".menu[open] button:has-text('{action}')")


def test_a_closed_tab_loses_nothing(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.key)
    talk(page, "Tell me of rain", "Tell me of snow")
    again = page.context.new_page()
    page.close()
    log_in(again, served.server.root, served.key)
    again.click("#conversations .entry:has-text('rain')")
    expect(again.locator(".message.user p")).to_have_text("Tell me of rain")
    again.reload()
    expect(again.locator(".message.user p")).to_have_text("Tell me of rain")


def test_they_are_searched_renamed_pinned_and_deleted(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.key)
    talk(page, "Tell me of rain", "Tell me of snow")
    assert titles(page) == ["Tell me of snow", "Tell me of rain"]
    page.fill("#search", "RAIN")
    expect(page.locator("#conversations .entry")).to_have_text(["Tell me of rain"])
    page.fill("#search", "")
    choose(page, "Tell me of rain", "Rename")
    expect(page.locator("#conversations li input")).to_be_focused()
    page.keyboard.type("Weather")
    page.keyboard.press("Enter")
    choose(page, "Weather", "Pin")
    expect(page.locator("#conversations .entry")).to_have_text(["Weather", "Tell me of snow"])
    choose(page, "Tell me of snow", "Delete")
    page.click("text=Delete for good?")
    expect(page.locator("#conversations .entry")).to_have_text(["Weather"])
    assert page.locator(".message").count() == 0


def test_an_export_can_be_imported_elsewhere(page: Page, served: Served, browser: Browser, tmp_path: Path) -> None:
    log_in(page, served.server.root, served.key)
    talk(page, "Tell me of rain")
    answer = page.locator(".message.assistant .markdown").inner_text()
    with page.expect_download() as saved:
        page.click("text=Export all")
    saved.value.save_as(tmp_path / "all.json")
    messages = json.loads((tmp_path / "all.json").read_text())["conversations"][0]["messages"]
    assert all(message["logprobs"] for message in messages if message["role"] == "assistant")
    assert sorted(message["role"] for message in messages) == ["assistant", "user"]
    with page.expect_download() as readable:
        choose(page, "Tell me of rain", "Export as Markdown")
    assert readable.value.suggested_filename == "tell-me-of-rain.md"
    assert "## You\n\nTell me of rain" in readable.value.path().read_text()

    other = browser.new_context().new_page()
    log_in(other, served.server.root, served.key)
    other.set_input_files("input[accept*=json]", tmp_path / "all.json")
    other.click(".entry:has-text('Tell me of rain')")
    expect(other.locator(".message.assistant .markdown")).to_have_text(answer.strip(), timeout=PATIENCE_MS)
    (tmp_path / "no.json").write_text("{}")
    other.set_input_files("input[accept*=json]", tmp_path / "no.json")
    expect(other.locator(".transfer [role=alert]")).to_contain_text("no export")
    other.context.close()


def test_tabs_agree(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.key)
    talk(page, "Tell me of rain")
    other = page.context.new_page()
    log_in(other, served.server.root, served.key)
    other.click(".entry:has-text('rain')")
    ask(page, "And snow?", max_tokens=4)
    wait_for_answer(page)
    expect(other.locator(".message.user")).to_have_count(2, timeout=PATIENCE_MS)
    expect(other.locator(".message.assistant button:has-text('Same answer?')")).to_have_count(2, timeout=PATIENCE_MS)
    choose(other, "Tell me of rain", "Delete")
    other.click("text=Delete for good?")
    expect(page.locator(".message")).to_have_count(0, timeout=PATIENCE_MS)
    expect(page.locator("#conversations .entry")).to_have_count(0, timeout=PATIENCE_MS)


def test_a_key_is_remembered_only_if_the_user_says_so(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.key)
    other = page.context.new_page()
    other.goto(f"{served.server.root}/")
    other.check("#remember")
    other.fill("#key", served.key)
    other.click("#login button")
    other.wait_for_selector("#question", state="visible")
    third = page.context.new_page()
    third.goto(f"{served.server.root}/")
    third.wait_for_selector("#question", state="visible")
    third.click("text=Log out")
    third.wait_for_selector("#key")
    third.reload()
    third.wait_for_selector("#key")
