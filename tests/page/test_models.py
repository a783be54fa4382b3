"""Several models on the page: an admin loads and unloads them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.front.many import ManyModels
from tests.page.driving import log_in, needs_browser
from tests.server.access.sharing import quick_key
from tests.waiting import PATIENCE_S

PATIENCE_MS = PATIENCE_S * 1000


class ManyServed:
    """Three models, two of which fit; the first is pinned."""

    def __init__(self, folder: Path) -> None:
        keys = folder / "keys.toml"
        self.key, self.admin = quick_key(keys, "alice"), quick_key(keys, "root", admin=True)
        self.server = ManyModels(folder, 2, "--keys", str(keys), a={"pinned": "true"}, b={"users": '["alice"]'})


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyServed]:
    started = ManyServed(tmp_path_factory.mktemp("many"))
    yield started
    started.server.stop()


def row(page: Page, name: str) -> Locator:
    return page.locator(f"#models tbody tr:has(td:first-child:text-is('{name}'))")


@needs_browser
def test_admins_load_and_unload_models(page: Page, many: ManyServed) -> None:
    """Also a model that their own requests may not use, and one for which another has to go."""
    log_in(page, many.server.root, many.admin)
    page.click("#show-server")
    page.click("#all-models summary")
    expect(row(page, "a")).to_contain_text("loaded, pinned", timeout=PATIENCE_MS)
    expect(page.locator("#all-models")).to_contain_text("A request for an unloaded model loads it.")
    assert row(page, "a").locator("button").count() == 0
    for name in ("b", "c"):
        row(page, name).locator("button:text-is('Load')").click()
        expect(row(page, name).locator("button:text-is('Unload')")).to_be_visible(timeout=PATIENCE_MS)
    expect(row(page, "b").locator("button:text-is('Load')")).to_be_visible(timeout=PATIENCE_MS)
    page.wait_for_selector("#model option:text-is('c')", state="attached")
    row(page, "c").locator("button:text-is('Unload')").click()
    row(page, "c").locator("text=Unload now?").click()
    expect(row(page, "c").locator("button:text-is('Load')")).to_be_visible(timeout=PATIENCE_MS)


@needs_browser
def test_models_are_shown_where_the_chosen_one_is_not_loaded(page: Page, many: ManyServed) -> None:
    log_in(page, many.server.root, many.admin)
    page.select_option("#model", "c")
    page.click("#show-server")
    page.click("#all-models summary")
    expect(row(page, "c")).to_contain_text("unloaded", timeout=PATIENCE_MS)


@needs_browser
def test_a_refusal_is_said(page: Page, many: ManyServed) -> None:
    refusal = {"error": {"message": "the model 'b' answers requests: unload it afterwards"}}
    page.route("**/admin/models/load", lambda route: route.fulfill(status=409, json=refusal))
    log_in(page, many.server.root, many.admin)
    page.click("#show-server")
    page.click("#all-models summary")
    row(page, "b").locator("button:text-is('Load')").click()
    expect(page.locator("#all-models [role=alert]")).to_contain_text("answers requests", timeout=PATIENCE_MS)


@needs_browser
def test_other_users_see_no_models(page: Page, many: ManyServed) -> None:
    log_in(page, many.server.root, many.key)
    page.click("#show-server")
    expect(page.locator("#server-note")).to_contain_text("admin key", timeout=PATIENCE_MS)
    assert page.locator("#all-models").count() == 0
