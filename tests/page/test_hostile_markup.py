"""Texts that want to run a script, to load something, or to look like the page: nothing of it happens.

They come as answers, as questions, as files and titles of an imported conversation, and in pieces of a stream.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.page.driving import Served, ask, log_in, needs_browser, wait_for_answer

pytestmark = needs_browser
TEXTS = (Path(__file__).parent / "hostile_markup.txt").read_text().splitlines()
PIECE = 11  # characters in an event of the stream
OWN_FILES = ("main.js", "katex.js", "highlighter.js", "style.css", "icon.svg")
# What the page shows of a text beside text.
FOREIGN = """() => [...document.querySelectorAll("#messages .markdown *, #messages .markdown")].flatMap((element) => {
  const isLink = element.localName === "a" && element.hasAttribute("href");
  return [
    ...(/^(script|style|iframe|object|embed|img|image|svg|form|input|video|audio|link|meta|base|template)$/
        .test(element.localName) ? [element.outerHTML] : []),
    ...[...element.attributes].filter(({name}) => /^on|^style$|^id$|^name$|srcdoc|^background$|formaction/.test(name))
        .map(() => element.outerHTML),
    ...(isLink && !/^(https?|mailto):/.test(element.href) ? [element.outerHTML] : []),
    ...(isLink && (element.target !== "_blank" || !/noopener/.test(element.rel)) ? [element.outerHTML] : []),
    ...(/message|round|hidden-label/.test(element.className) ? [element.outerHTML] : []),
  ];
})"""


@pytest.fixture
def undisturbed(page: Page, served: Served) -> Iterator[Page]:
    """The page; at the end nothing has run or been asked for."""
    elsewhere: list[str] = []
    hits: list[str] = []
    page.expose_function("hit", lambda: hits.append("hit"))
    page.on("dialog", lambda dialog: (hits.append(dialog.message), dialog.dismiss()))
    log_in(page, served.server.root, served.key)

    def watch(url: str) -> None:
        if url.removeprefix(f"{served.server.root}/page/") not in OWN_FILES and "/chat/completions" not in url:
            elsewhere.append(url)

    page.on("request", lambda request: watch(request.url))
    page.context.on("page", lambda opened: elsewhere.append(opened.url))
    yield page
    page.wait_for_timeout(500)  # what should not happen has no end to wait for
    assert page.evaluate(FOREIGN) == []
    assert (hits, [url for url in elsewhere if not url.endswith("/v1/models")]) == ([], [])


def test_there_are_200() -> None:
    assert len(set(TEXTS)) >= 200


def conversation(texts: list[str]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    request = {"model": "<img src=x onerror=hit()>", "messages": []}
    for text in texts:
        place = {"id": str(len(messages)), "parent": messages[-1]["id"] if messages else None, "order": len(messages)}
        if len(messages) % 2:
            call = {"name": text, "arguments": text}
            messages.append({
                **place, "role": "assistant", "content": text, "reasoning": text, "toolCalls": [call], "logprobs": [],
                "state": "done", "request": request, "same": text,
            })  # fmt: skip
        else:
            messages.append({
                **place, "role": "user", "content": text, "attachments": [{"name": text, "text": text}]
            })  # fmt: skip
    return {"conversation": {"title": texts[0], "last": messages[-1]["id"]}, "messages": messages}


@pytest.mark.parametrize("is_shifted", [False, True], ids=["as they are", "questions as answers"])
def test_nothing_hostile_runs(undisturbed: Page, tmp_path: Path, is_shifted: bool) -> None:
    texts = TEXTS[1:] + TEXTS[:1] if is_shifted else TEXTS
    export = {"format": "surefoot-conversations", "version": 1, "conversations": [conversation(texts)]}
    (tmp_path / "hostile.json").write_text(json.dumps(export))
    undisturbed.set_input_files("input[accept*=json]", tmp_path / "hostile.json")
    undisturbed.click("#conversations .entry")
    messages = undisturbed.locator(".message")
    while messages.count() < len(TEXTS):
        undisturbed.evaluate("document.querySelector('#messages').scrollTop = 0")
    undisturbed.evaluate("for (const folded of document.querySelectorAll('#messages details')) folded.open = true")


def test_nothing_hostile_streams_in(undisturbed: Page) -> None:
    text = "\n\n".join(TEXTS)
    pieces = [text[begin : begin + PIECE] for begin in range(0, len(text), PIECE)]
    events = [json.dumps({"choices": [{"delta": {"content": piece}}]}) for piece in pieces]
    body = "".join(f"id: {number}\ndata: {event}\n\n" for number, event in enumerate(events)) + "data: [DONE]\n\n"
    undisturbed.route("**/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    ask(undisturbed, "Go on")
    wait_for_answer(undisturbed)
