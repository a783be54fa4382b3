"""The page at `/`, driven by a real Chromium."""

import gzip
import re
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from surefoot.server.routes.page import page_files
from tests.page.driving import PHONE, Served, ask, log_in, needs_browser, wait_for_answer
from tests.page.held_proxy import HeldProxy
from tests.server.busy import busy
from tests.waiting import PATIENCE_S

HTML = {"Accept": "text/html"}


def test_no_key_is_needed_to_load_it(served: Served) -> None:
    reply = httpx.get(f"{served.server.root}/", headers=HTML)
    assert (reply.status_code, "<title>surefoot" in reply.text) == (200, True)
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert httpx.get(f"{served.server.root}/page/../keys.toml").status_code in (401, 404)
    assert httpx.get(f"{served.server.root}/page/none.js").status_code == 404


def test_clients_of_ollama_get_a_line_of_text(served: Served) -> None:
    assert httpx.get(f"{served.server.root}/").text == "surefoot is running"


def test_it_loads_nothing_from_elsewhere() -> None:
    """Addresses stand in warnings, examples and licences of libraries, and as names of formats. The policy forbids to
    load them, and test_nothing_hostile_runs tries it."""
    known = {b"http://www.w3.org", b"https://github.com", b"http://example.com"}
    for name, data in page_files().items():
        if name != "licenses.txt":
            assert set(re.findall(rb"https?://[\w.]+", data)) <= known, name


def test_it_is_small() -> None:
    sizes = {name: len(gzip.compress(data)) for name, data in page_files().items()}
    assert sum(sizes.values()) < 600_000
    assert sizes["index.html"] + sizes["main.js"] + sizes["style.css"] < 100_000, "what a first visit loads"


def test_licences_of_what_is_built_in_are_told() -> None:
    text = page_files()["licenses.txt"].decode()
    for package in ("katex", "pdfjs-dist", "preact"):
        assert re.search(rf"^{package} \d", text, re.MULTILINE), package
    assert "Apache License" in text


@needs_browser
def test_a_wrong_key_is_refused_and_a_right_one_opens(page: Page, served: Served) -> None:
    page.goto(f"{served.server.root}/")
    page.fill("#key", "sf-wrong")
    page.click("#login button")
    expect(page.locator("#login-error")).to_contain_text("not valid", timeout=PATIENCE_S * 1000)
    page.fill("#key", served.key)
    page.click("#login button")
    page.wait_for_selector("#question", state="visible")
    assert page.input_value("#model") == "small"


@needs_browser
def test_chat_and_the_same_answer_again(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.key)
    ask(page, "Once upon a time")
    wait_for_answer(page)
    page.click("text=Details")
    assert "20 tokens" in page.locator(".message.assistant .details").inner_text()
    page.click("text=Same answer?")
    expect(page.locator(".message.assistant")).to_contain_text("same bits: 20 tokens", timeout=PATIENCE_S * 1000)


def stored_answer(page: Page) -> dict[str, Any]:
    """The last message of the only conversation, as the browser keeps it."""
    answer: dict[str, Any] = page.evaluate(
        """() => new Promise((done) => {
          indexedDB.open("surefoot").onsuccess = ({ target: { result: database } }) => {
            database.transaction("messages").objectStore("messages").getAll().onsuccess = ({ target: { result } }) => {
              database.close();
              done(result.sort((a, b) => a.order - b.order).at(-1));
            };
          };
        })"""
    )
    return answer


def check_undisturbed(served: Served, answer: dict[str, Any]) -> None:
    """The answer is that of a request with the same values that nothing disturbed."""
    whole = httpx.post(
        f"{served.server.url}/chat/completions", timeout=PATIENCE_S, headers={"Authorization": f"Bearer {served.key}"},
        json={**answer["request"], **answer["usage"]["sampling"], "stream": False, "stream_options": None},
    ).json()["choices"][0]  # fmt: skip
    assert answer["content"] == whole["message"]["content"]
    assert answer["logprobs"] == [token["logprob"] for token in whole["logprobs"]["content"]]


@needs_browser
def test_stop_and_go_on(page: Page, served: Served, proxy: HeldProxy) -> None:
    log_in(page, proxy.root, served.key)
    ask(page, "Once upon a time", max_tokens=200)
    page.wait_for_selector(".message.assistant p")
    page.press("body", "Escape")
    page.wait_for_selector("button:has-text('Go on')")
    assert 0 < len(stored_answer(page)["logprobs"]) < 200
    proxy.released.set()
    page.click("button:has-text('Go on')")
    wait_for_answer(page)
    check_undisturbed(served, stored_answer(page))


@needs_browser
def test_a_reload_resumes(page: Page, served: Served, proxy: HeldProxy) -> None:
    log_in(page, proxy.root, served.key)
    ask(page, "Once upon a time", max_tokens=200)
    page.wait_for_selector(".message.assistant p")
    proxy.released.set()
    page.reload()
    wait_for_answer(page)
    check_undisturbed(served, stored_answer(page))


@needs_browser
def test_an_edited_message_begins_a_branch(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.key)
    ask(page, "One")
    wait_for_answer(page)
    page.click("text=Edit")
    ask(page, "Two")
    wait_for_answer(page)
    assert page.locator(".message.user p").inner_text() == "Two"
    page.click("[aria-label='Previous version']")
    assert page.locator(".message.user p").inner_text() == "One"
    assert page.locator(".message.assistant").count() == 1


@needs_browser
def test_operators_see_figures_and_users(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.admin)
    ask(page, "Once upon a time")
    wait_for_answer(page)
    page.click("#show-server")
    page.wait_for_selector("#users td:has-text('root')")
    expect(page.locator("#answers")).to_contain_text(
        "of the last 15 minutes came within 2 s", timeout=PATIENCE_S * 1000
    )
    page.click("#more summary")
    assert "Generated tokens a second" in page.inner_text("#figures")


@needs_browser
def test_operators_see_the_last_quarter_of_an_hour_day_and_week(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.admin)
    page.click("#show-server")
    expect(page.locator(".charts figure canvas")).to_have_count(4, timeout=PATIENCE_S * 1000)
    for name, span in (("Week", "week"), ("Day", "day"), ("15 minutes", "minutes")):
        with page.expect_response(lambda reply, span=span: f"span={span}" in reply.url) as reply:  # type: ignore[misc]
            page.click(f".spans button:has-text('{name}')")
        assert reply.value.ok
        assert page.locator(".spans [aria-pressed='true']").inner_text() == name


@needs_browser
def test_admins_add_and_revoke_keys(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.admin)
    page.click("#show-server")
    page.click("#all-keys summary")
    page.fill("#new-key-form [name=user]", "carol")
    page.fill("#new-key-form [name=requests_per_minute]", "60")
    page.click("text=Add a key")
    key = page.inner_text("#new-key code")
    row = page.locator("#keys-table tr:has-text('carol')")
    expect(row).to_contain_text("60", timeout=PATIENCE_S * 1000)
    headers = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{served.server.url}/models", headers=headers).status_code == 200
    row.locator("button").click()
    row.locator("text=Revoke for good?").click()
    expect(row).to_have_count(0, timeout=PATIENCE_S * 1000)
    assert httpx.get(f"{served.server.url}/models", headers=headers).status_code == 401


@needs_browser
def test_the_only_model_cannot_be_unloaded(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.admin)
    page.click("#show-server")
    page.click("#all-models summary")
    expect(page.locator("#models tbody tr")).to_contain_text(re.compile(r"small\s*loaded"))
    expect(page.locator("#all-models")).to_contain_text("one model, the one that it was started with")
    assert page.locator("#models button").count() == 0


@needs_browser
def test_admins_forget_what_the_disk_has_of_a_user(page: Page, served: Served) -> None:
    users = [{"user": "alice", "hash": "1", "bytes": 3 << 20}, {"user": None, "hash": "public", "bytes": 1 << 20}]

    def reply(route: Route) -> None:
        if route.request.method == "DELETE":
            assert "user=alice" in route.request.url
            del users[0]
        route.fulfill(json={"data": users})

    page.route("**/admin/cache*", reply)
    log_in(page, served.server.root, served.admin)
    page.click("#show-server")
    page.click("#all-cached summary")
    assert page.inner_text("#cache tbody tr >> nth=1").split("\t")[:2] == ["shared by all", "1.0 MiB"]
    page.click("#cache tr:has-text('alice') button")
    page.click("text=Forget for good?")
    expect(page.locator("#cache tbody tr")).to_have_count(1, timeout=PATIENCE_S * 1000)


@needs_browser
def test_operators_see_who_runs_who_waits_and_what_was_slow(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.admin)
    page.click("#show-server")
    with busy(served.server, [served.key, served.key, served.admin]):
        page.wait_for_selector("#requests tr:has-text('alice'):has-text('answers')")
        page.wait_for_selector("#requests tr:has-text('alice'):has-text('waits')")
        page.wait_for_selector("#users tr:has-text('root'):has-text('50 %')")
        page.wait_for_selector("#answers li:has-text('alice'):has-text('(fair: 50 %)')")
        page.click("#more summary")
        page.wait_for_selector("#figures div:has-text('Generated tokens a second') dd:has-text(' of ')")
    page.wait_for_selector("#requests td:has-text('Nothing runs or waits.')")
    row = page.locator("#slowest tbody tr").first
    expect(row).to_contain_text(re.compile("queue: others were ahead|tokens a second"))
    assert "queue" in (row.locator(".phases").get_attribute("aria-label") or "")


@needs_browser
def test_figures_go_on_after_a_broken_stream(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.admin)
    is_broken = True
    # The route stays: a request that is held while its route is taken away may never be answered.
    page.route("**/overview*", lambda route: route.abort() if is_broken else route.continue_())
    page.click("#show-server")
    expect(page.locator("#server-note")).to_contain_text("trying again", timeout=PATIENCE_S * 1000)
    is_broken = False
    page.wait_for_selector("#answers .verdict >> nth=0")
    expect(page.locator("#server-note")).to_have_text("", timeout=PATIENCE_S * 1000)


@needs_browser
def test_the_picker_tells_which_models_are_loaded(page: Page, served: Served) -> None:
    states = {"small": "loaded", "large": "unloaded", "next": "loading"}
    models = [{"id": name, "object": "model", "state": state} for name, state in states.items()]
    page.route("**/v1/models", lambda route: route.fulfill(json={"object": "list", "data": models}))
    page.goto(f"{served.server.root}/")
    page.wait_for_selector("#question", state="visible")
    assert page.locator("#model option").all_inner_texts() == ["small", "large (unloaded)", "next (loading)"]
    page.select_option("#model", "next")
    models[2]["state"] = "loaded"
    page.focus("#question")
    page.focus("#model")
    expect(page.locator("#model option").nth(2)).to_have_text("next", timeout=PATIENCE_S * 1000)
    assert page.input_value("#model") == "next"


@needs_browser
def test_operators_watch_the_chosen_model(page: Page, served: Served) -> None:
    models = [{"id": name, "object": "model", "state": "loaded"} for name in ("small", "large")]
    page.route("**/v1/models", lambda route: route.fulfill(json={"object": "list", "data": models}))
    page.route("**/overview*", lambda route: route.abort())
    page.goto(f"{served.server.root}/")
    page.wait_for_selector("#question", state="visible")
    with page.expect_request("**/overview?model=small"):
        page.click("#show-server")
    with page.expect_request("**/overview?model=large"):
        page.select_option("#model", "large")


@needs_browser
def test_a_chosen_theme_is_the_systems(browser: Browser, served: Served) -> None:
    def colour(system: str, num_clicks: int) -> str:
        page = browser.new_page(color_scheme=system)  # type: ignore[arg-type]
        page.goto(f"{served.server.root}/")
        for _ in range(num_clicks):
            page.click("#theme")
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.close()
        return found

    assert colour("light", 1) == colour("dark", 0) == colour("dark", 2)
    assert colour("dark", 1) == colour("light", 0) != colour("dark", 0)


@needs_browser
def test_other_users_see_no_figures(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.key)
    page.click("#show-server")
    expect(page.locator("#server-note")).to_contain_text("admin key", timeout=PATIENCE_S * 1000)


@needs_browser
def test_a_model_cannot_bring_markup(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.key)
    ask(page, "<img src=x onerror=alert(1)> **bold** [a](javascript:alert(1)) `code`", max_tokens=2)
    wait_for_answer(page)
    box = page.locator(".message.user")
    assert box.locator("img, a").count() == 0
    assert box.locator("strong").inner_text() == "bold"
    assert box.locator("code").inner_text() == "code"


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_accessible_and_fits_a_phone(browser: Browser, served: Served, theme: str) -> None:
    context = browser.new_context(color_scheme=theme, viewport=PHONE)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_S * 1000)
    page = context.new_page()
    log_in(page, served.server.root, served.admin)
    ask(page, "Once upon a time")
    wait_for_answer(page)
    for view in ("#show-chat", "#show-server"):
        page.click(view)
        if view == "#show-server":
            for unfolding in ("#more", "#all-models", "#all-keys", "#all-cached"):
                page.click(f"{unfolding} summary")
            page.wait_for_selector("#slowest td")
            page.wait_for_selector("#keys-table button")
            page.wait_for_selector("#models td:has-text('loaded')")
        violations = Axe().run(page).response["violations"]
        serious = [found["id"] for found in violations if found["impact"] in ("serious", "critical")]
        assert serious == [], view
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], view
    context.close()


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_unfolds_is_accessible_too(browser: Browser, served: Served, theme: str) -> None:
    page = browser.new_page(color_scheme=theme)  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE_S * 1000)
    log_in(page, served.server.root, served.key)
    code = "```python\ndef f(x: int) -> str:\n    return 'a'  # 1\n```"
    ask(page, f"| a | b |\n|---|---|\n| 1 | $x^2$ |\n\n> quoted `code`\n\n{code}", max_tokens=2)
    wait_for_answer(page)
    page.wait_for_selector(".hljs-keyword")
    page.wait_for_selector("math")
    page.click("text=Details")
    page.click(".menu summary")
    violations = Axe().run(page).response["violations"]
    assert [found["id"] for found in violations if found["impact"] in ("serious", "critical")] == []
    page.close()


def test_the_api_page_needs_no_key_but_the_schema_does(served: Served) -> None:
    root = served.server.root
    reply = httpx.get(f"{root}/docs")
    assert reply.status_code == 200
    assert "unsafe" not in reply.headers["Content-Security-Policy"]
    assert httpx.get(f"{root}/docs/swagger-ui-bundle.js").headers["content-type"].startswith("text/javascript")
    assert httpx.get(f"{root}/docs/redoc.standalone.js").status_code == 404
    assert httpx.get(f"{root}/openapi.json").status_code == 401


@needs_browser
def test_the_api_is_shown_and_can_be_tried_out(page: Page, served: Served) -> None:
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text) if "Content Security Policy" in message.text else 0)
    page.goto(f"{served.server.root}/docs")
    page.fill("#key", served.key)
    page.click("#login button")
    page.click("#operations-OpenAI-models_v1_models_get .opblock-summary-control")
    page.click("text=Try it out")
    page.click("text=Execute")
    expect(page.locator(".live-responses-table .response-col_status").nth(1)).to_have_text("200")
    assert '"small"' in page.inner_text(".live-responses-table")
    assert refused == []
