"""Defaults of sampling and the chat template of a served model: the request wins, replies tell, fingerprints differ."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.defaults import advised_gguf
from tests.cli.process import run
from tests.server.process import Server
from tests.stories import VOCABULARY, WEIGHTS, stories_gguf, write_llama2c

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "Once upon a time"}]
TOLD = {
    "temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "seed": 3,
}  # fmt: skip


def base_gguf(path: Path) -> Path:
    """stories260K without a chat template."""
    gguf = pytest.importorskip("gguf")
    stories_gguf()

    class WithoutTemplate(gguf.GGUFWriter):
        def add_chat_template(self, value: object) -> None:
            """Nothing."""

    write_llama2c(WithoutTemplate(path, "llama"), WEIGHTS, VOCABULARY)
    return path


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = advised_gguf(tmp_path_factory.mktemp("advised") / "advised.gguf")
    made = Server(path, "--sampling", "top_p=0.9")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(base_gguf(tmp_path_factory.mktemp("base") / "base.gguf"), "--max-context", "256")
    yield made
    made.stop()


def post(server: Server, route: str, **body: Any) -> httpx.Response:
    return httpx.post(server.root + route, json={"model": "small", **body}, timeout=300)


def ask(server: Server, **more: Any) -> dict[str, Any]:
    reply = post(server, CHAT, messages=MESSAGES, max_tokens=24, seed=3, **more)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def text_of(reply: dict[str, Any]) -> str:
    content: str = reply["choices"][0]["message"]["content"]
    return content


def test_defaults_are_told_at_start_and_in_replies(advised: Server) -> None:
    assert "sampling temperature 0.5, top_k 7, top_p 0.9 (as the model's file advises, changed)" in advised.log
    assert "sampling min_p must lie between 0.0 and 1.0, not at 2.5: the model's value is ignored" in advised.log
    assert ask(advised)["usage"]["sampling"] == TOLD


def test_defaults_are_what_the_request_would_have_said(advised: Server) -> None:
    """Written out, they give the same answer; null is as if left out; what a request says comes first."""
    whole = ask(advised)
    assert text_of(ask(advised, temperature=0.5, top_k=7, top_p=0.9)) == text_of(whole)
    assert text_of(ask(advised, temperature=None, top_k=None)) == text_of(whole)
    hot = ask(advised, temperature=2.0, top_k=0)
    assert hot["usage"]["sampling"] == {**TOLD, "temperature": 2.0, "top_k": 0}
    assert text_of(hot) != text_of(whole)


def test_defaults_hold_for_every_route(advised: Server) -> None:
    said = post(advised, "/v1/messages", messages=MESSAGES, max_tokens=4).json()
    assert {**said["usage"]["sampling"], "seed": 3} == TOLD
    said = post(advised, "/v1/responses", input="Once", max_output_tokens=16).json()
    assert {**said["usage"]["sampling"], "seed": 3} == TOLD
    assert (said["temperature"], said["top_p"]) == (0.5, 0.9)
    said = post(advised, TEXT, prompt="Once", max_tokens=4, seed=3).json()
    assert said["usage"]["sampling"] == TOLD


def test_tools_leave_the_models_own_defaults_alone(advised: Server) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    assert ask(advised, tools=tools)["usage"]["sampling"] == TOLD


def test_fingerprint_and_streams_follow_the_defaults(advised: Server) -> None:
    """A stream goes on only where what was left out means the same: the fingerprint is part of its ids."""
    body = {"messages": MESSAGES, "max_tokens": 8, "stream": True, "model": "small", "seed": 3}
    with httpx.stream("POST", advised.root + CHAT, json=body) as stream:
        mark = next(line for line in stream.iter_lines() if line.startswith("id: ")).removeprefix("id: ")
    assert httpx.post(advised.root + CHAT, json=body, headers={"Last-Event-ID": mark}).status_code == 200
    changed = {**body, "temperature": 0.25}
    assert httpx.post(advised.root + CHAT, json=changed, headers={"Last-Event-ID": mark}).status_code == 400


def test_base_model_is_said_at_start_and_answers_text(base: Server) -> None:
    assert base.log.index("no chat template in the model") < base.log.index("model    small")
    reply = post(base, CHAT, messages=MESSAGES)
    assert reply.status_code == 400
    assert "--chat-template" in reply.json()["error"]["message"]
    assert post(base, TEXT, prompt="Once", max_tokens=4).status_code == 200


def test_base_model_is_refused_by_chat_before_loading(tmp_path: Path) -> None:
    model = base_gguf(tmp_path / "base.gguf")
    for words in (["chat", str(model)], ["generate", str(model), "Hi", "--chat"]):
        done = run(*words, "--variant", "none-such")  # whoever loads it fails on that
        assert done.returncode == 1
        assert "has no chat template" in done.stderr
        assert "--chat-template" in done.stderr
    talked = run("chat", str(model), "--chat-template", "vicuna", "-n", "4", text="Hi\n")
    assert talked.returncode == 0, talked.stderr


def test_chat_template_of_the_operator(tmp_path: Path) -> None:
    file = tmp_path / "shout.jinja"
    file.write_text("{{ bos_token }}{{ messages[0].content | upper }}")
    done = run("generate", str(stories_gguf()), "Once", "--chat", "--chat-template", str(file), "-n", "2", "--json")
    assert '"prompt": "<s>ONCE"' in done.stdout
