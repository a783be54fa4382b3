"""What goes along with a question: files, system message, sampling, the form of the answer."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect

from tests.page.driving import Served, ask, log_in, needs_browser, wait_for_answer
from tests.page.pdf_files import pdf
from tests.waiting import PATIENCE_S

pytestmark = needs_browser
PATIENCE_MS = PATIENCE_S * 1000
EVENTS = 'id: 1\ndata: {"choices": [%s]}\n\ndata: [DONE]\n\n'


@pytest.fixture
def asked(page: Page) -> list[dict[str, Any]]:
    """The bodies of the requests for answers."""
    bodies: list[dict[str, Any]] = []

    def keep(request: Request) -> None:
        if request.url.endswith("/chat/completions"):
            bodies.append(json.loads(request.post_data or ""))

    page.on("request", keep)
    return bodies


def answer_with(page: Page, delta: dict[str, Any]) -> None:
    """The server's answers have this delta."""
    body = EVENTS % json.dumps({"delta": delta})
    page.route("**/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))


def test_files_are_sized_and_sent(page: Page, served: Served, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\xff")
    log_in(page, served.server.root, served.key)
    page.set_input_files("#files", tmp_path / "table.csv")
    expect(page.locator(".files li")).to_contain_text(re.compile(r"table\.csv\s*\d+ tokens"))
    page.set_input_files("#files", tmp_path / "picture.png")
    expect(page.locator("#problem")).to_contain_text("picture.png is not a text file")
    ask(page, "What is b?", max_tokens=2)
    wait_for_answer(page)
    assert asked[0]["messages"] == [{"role": "user", "content": "table.csv:\n```csv\na,b\n1,2\n```\n\nWhat is b?"}]
    assert page.locator(".message.user summary").inner_text().strip() == "table.csv"
    assert page.locator(".files").count() == 0


def test_the_text_of_a_pdf_is_sent(page: Page, served: Served, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    """pdf.js is loaded then, not before, and runs under the policy as it stands."""
    loaded, refused = [], []
    page.on("request", lambda request: loaded.append(request.url.rpartition("/")[2]))
    page.on("console", lambda message: refused.append(message.text) if "Content Security" in message.text else None)
    (tmp_path / "report.pdf").write_bytes(pdf("Sales were 42.", "They will be 43."))
    log_in(page, served.server.root, served.key)
    assert not [name for name in loaded if name.startswith("pdf")]
    page.set_input_files("#files", tmp_path / "report.pdf")
    expect(page.locator(".files li")).to_contain_text(re.compile(r"report\.pdf\s*\d+ tokens"), timeout=PATIENCE_MS)
    assert {"pdf.js", "pdf.worker.js"} <= {*loaded}
    ask(page, "Sales?", max_tokens=2)
    wait_for_answer(page)
    [message] = asked[0]["messages"]
    assert message["content"] == "report.pdf:\n```pdf\nSales were 42.\nThey will be 43.\n```\n\nSales?"
    assert refused == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (pdf(), "has no text: it may be a scan"),
        (pdf("secret", locked=True), "is encrypted"),
        (b"%PDF-1.4 and nothing else", "cannot be read: it is not a valid PDF"),
        (bytes((32 << 20) + 1), "is larger than 32 MiB"),
    ],
    ids=["scan", "encrypted", "broken", "large"],
)
def test_a_pdf_that_cannot_be_read_is_refused(
    page: Page, served: Served, tmp_path: Path, data: bytes, problem: str
) -> None:
    (tmp_path / "a.pdf").write_bytes(data)
    log_in(page, served.server.root, served.key)
    page.set_input_files("#files", tmp_path / "a.pdf")
    expect(page.locator("#problem")).to_contain_text(f"a.pdf {problem}", timeout=PATIENCE_MS)
    assert page.locator(".files").count() == 0


@pytest.mark.parametrize(
    ("kind", "event"), [("drop", "new DragEvent('drop', %s)"), ("paste", "new ClipboardEvent('paste', %s)")]
)
def test_files_are_dropped_and_pasted(page: Page, served: Served, kind: str, event: str) -> None:
    log_in(page, served.server.root, served.key)
    name = {"drop": "dataTransfer", "paste": "clipboardData"}[kind]
    page.locator("#question").evaluate(
        """(area) => {
          const data = new DataTransfer();
          data.items.add(new File(["some text"], "note.txt"));
          area.dispatchEvent(%s);
        }"""
        % (event % f"{{{name}: data, bubbles: true, cancelable: true}}")
    )
    expect(page.locator(".files li")).to_contain_text("note.txt")
    page.click("[aria-label='Remove note.txt']")
    assert page.locator(".files").count() == 0


def test_settings_go_along(page: Page, served: Served, asked: list[dict[str, Any]]) -> None:
    log_in(page, served.server.root, served.key)
    page.click("text=Settings")
    page.fill("#system", "Answer briefly.")
    page.fill("[aria-label='Name of the preset']", "Brief")
    page.click("text=Save as preset")
    page.fill("#system", "")
    page.select_option("[aria-label='Presets']", "Brief")
    for field, value in {"temperature": "0.5", "top-p": "0.9", "seed": "7"}.items():
        page.fill(f"#{field}", value)
    page.fill("#schema", '{"type": "boolean"')
    ask(page, "Is it?", max_tokens=4)
    expect(page.locator("#problem")).to_contain_text("not valid")
    page.fill("#schema", '{"type": "boolean"}')
    page.press("#question", "Enter")
    wait_for_answer(page)
    assert asked[0]["messages"][0] == {"role": "system", "content": "Answer briefly."}
    assert (asked[0]["temperature"], asked[0]["top_p"], asked[0]["seed"], asked[0]["max_tokens"]) == (0.5, 0.9, 7, 4)
    assert page.locator(".message.assistant .markdown").inner_text().strip() in ("true", "false")
    page.reload()
    page.wait_for_selector("#question")
    assert page.input_value("#system") == "Answer briefly."


def test_reasoning_is_folded_and_tools_are_cards(page: Page, served: Served) -> None:
    log_in(page, served.server.root, served.key)
    call = {"index": 0, "function": {"name": "weather", "arguments": '{"place":"Oslo"}'}}
    answer_with(page, {"reasoning_content": "Let me think.", "content": "Wait.", "tool_calls": [call]})
    ask(page, "Weather?")
    wait_for_answer(page)
    reasoning = page.locator(".message.assistant .reasoning .markdown")
    expect(reasoning).to_be_hidden()
    page.click("text=Reasoning")
    expect(reasoning).to_have_text("Let me think.")
    expect(page.locator(".card:has-text('weather') pre")).to_have_text('{\n  "place": "Oslo"\n}')


@pytest.fixture
def read_clipboard(page: Page) -> Callable[[], str]:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    return lambda: page.evaluate("navigator.clipboard.readText()")


def test_messages_and_code_are_copied(page: Page, served: Served, read_clipboard: Callable[[], str]) -> None:
    log_in(page, served.server.root, served.key)
    answer = "Run this:\n\n```python\nprint(1)\n```"
    answer_with(page, {"content": answer})
    ask(page, "How?")
    wait_for_answer(page)
    expect(page.locator(".code-block .hljs-number")).to_have_text("1")
    page.click(".code-bar button")
    expect(page.locator(".code-bar button")).to_have_text("Copied")
    assert read_clipboard() == "print(1)\n"
    page.click(".message.assistant .actions button:has-text('Copy')")
    expect(page.locator(".message.assistant .actions")).to_contain_text("Copied")
    assert read_clipboard() == answer
