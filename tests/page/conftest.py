"""A server with keys, and a browser before it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.page.driving import CHROMIUM, FLAGS, Served
from tests.page.held_proxy import HeldProxy
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    started = Served(tmp_path_factory.mktemp("page"))
    yield started
    started.server.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_S * 1000)
    opened = context.new_page()
    opened.problems = []  # type: ignore[attr-defined]
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))  # type: ignore[attr-defined]
    yield opened
    assert opened.problems == []  # type: ignore[attr-defined]
    context.close()


@pytest.fixture
def proxy(served: Served) -> Iterator[HeldProxy]:
    opened = HeldProxy(int(served.server.root.rpartition(":")[2]), num_bytes=8000)
    yield opened
    opened.close()
