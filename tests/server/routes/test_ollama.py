"""Ollama's API, as its clients speak it (its own Python client is in tests/clients)."""

import json
import math
from typing import Any

import httpx
import pytest

from tests.server.answer.streams import wait_until_idle
from tests.server.answer.structured import SCHEMA, WEATHER
from tests.server.process import Server

QUESTION = [{"role": "user", "content": "Name three colours."}]
GREEDY = {"temperature": 0, "num_predict": 16, "num_ctx": 4096, "num_gpu": 1}


def post(server: Server, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.root}/api/{path}", json={"model": "small:latest", **body}, timeout=300)


def lines(reply: httpx.Response) -> list[dict[str, Any]]:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


def test_chat_whole_and_as_lines(server: Server) -> None:
    """A stream is what a client gets that does not say."""
    streamed = lines(post(server, "chat", messages=QUESTION, options=GREEDY, keep_alive="5m"))
    whole = post(server, "chat", messages=QUESTION, options=GREEDY, stream=False).json()
    assert "".join(line["message"]["content"] for line in streamed) == whole["message"]["content"]
    assert [line["done"] for line in streamed] == [False] * (len(streamed) - 1) + [True]
    for last in (whole, streamed[-1]):
        assert last["eval_count"] <= 16
        assert last["prompt_eval_count"] > 5
        assert last["done_reason"] in ("stop", "length")
        assert last["total_duration"] >= last["eval_duration"] >= 0
    chat = {"model": "small", "messages": QUESTION, "temperature": 0, "max_tokens": 16}
    same = httpx.post(f"{server.url}/chat/completions", json=chat, timeout=300).json()
    assert same["choices"][0]["message"]["content"] == whole["message"]["content"]
    assert same["usage"]["prompt_tokens"] == whole["prompt_eval_count"]


def test_generate_with_and_without_template(server: Server) -> None:
    chat = post(server, "chat", messages=QUESTION, options=GREEDY, stream=False).json()
    templated = post(server, "generate", prompt=QUESTION[0]["content"], options=GREEDY, stream=False).json()
    assert templated["response"] == chat["message"]["content"]
    raw = post(server, "generate", prompt="The capital of France is", raw=True, options=GREEDY, stream=False).json()
    assert raw["prompt_eval_count"] < templated["prompt_eval_count"]
    streamed = lines(post(server, "generate", prompt="The capital of France is", raw=True, options=GREEDY))
    assert "".join(line["response"] for line in streamed) == raw["response"]


def test_format_and_tools(server: Server) -> None:
    ask = {"messages": QUESTION, "options": {"seed": 3, "num_predict": 80}}
    found = post(server, "chat", **ask, format=SCHEMA, stream=False).json()
    assert set(json.loads(found["message"]["content"])) == {"name", "age"}
    call = {"function": {"name": "get_weather", "arguments": {"city": "A"}}}
    described = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_name": "get_weather"},
    ]
    reply = post(server, "chat", messages=described, tools=[WEATHER], options=GREEDY)
    for line in lines(reply):
        for call in line["message"].get("tool_calls", ()):
            assert set(call["function"]["arguments"]) == {"city", "unit"}


def test_last_message_of_the_assistant_is_gone_on_with(server: Server) -> None:
    whole = post(server, "chat", messages=QUESTION, options=GREEDY, stream=False).json()["message"]["content"]
    begun = whole[: whole.index(" ")]
    messages = [*QUESTION, {"role": "assistant", "content": begun}]
    rest = post(server, "chat", messages=messages, options=GREEDY, stream=False).json()["message"]["content"]
    assert rest.startswith(whole[len(begun) :][:4])


def test_embeddings(server: Server) -> None:
    found = post(server, "embed", input=["a", "b c"]).json()
    (first, second), old = found["embeddings"], post(server, "embeddings", prompt="a").json()["embedding"]
    assert first == old != second
    assert math.isclose(math.fsum(value * value for value in first), 1, rel_tol=1e-5)
    assert found["prompt_eval_count"] > 0


def test_models(server: Server) -> None:
    listed = httpx.get(f"{server.root}/api/tags").json()["models"]
    assert [one["name"] for one in listed] == ["small:latest"]
    assert httpx.get(f"{server.root}/api/ps").json()["models"][0]["context_length"] == 2048
    shown = post(server, "show").json()
    assert {"completion", "tools"} <= set(shown["capabilities"])
    assert "insert" not in shown["capabilities"]
    assert shown["model_info"]["llama.context_length"] == 2048
    assert post(server, "show", model=None, name="small").status_code == 200
    assert httpx.get(f"{server.root}/api/version").json()["version"]
    assert httpx.head(server.root).status_code == 200


def test_body_need_not_say_that_it_is_json(server: Server) -> None:
    body = json.dumps({"model": "small", "messages": QUESTION, "options": GREEDY, "stream": False})
    reply = httpx.post(f"{server.root}/api/chat", content=body, timeout=300)
    assert "content-type" not in reply.request.headers
    assert reply.json()["done"]


def test_request_without_a_prompt_loads_the_model(server: Server) -> None:
    assert post(server, "chat", messages=[]).json()["done_reason"] == "load"
    assert post(server, "generate").json()["done_reason"] == "load"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("chat", {"model": "other", "messages": QUESTION}, 404),
        ("chat", {"messages": QUESTION, "format": {"type": "frob"}}, 400),
        ("chat", {"messages": QUESTION, "options": {"temperature": -1}}, 400),
        ("chat", {"messages": [{"role": "user", "content": "What?", "images": ["aGk="]}]}, 400),
        ("generate", {"prompt": "a", "suffix": "b"}, 400),
        ("generate", {"prompt": "a", "template": "{{ .Prompt }}"}, 400),
        ("show", {"model": "other"}, 404),
        ("pull", {}, 404),
    ],
)
def test_refusals_in_its_own_shape(server: Server, path: str, body: dict[str, Any], status: int) -> None:
    reply = post(server, path, **body)
    assert reply.status_code == status, reply.text
    assert set(reply.json()) == {"error"}
    assert isinstance(reply.json()["error"], str)


def test_client_that_goes_ends_its_request(server: Server) -> None:
    body = {"model": "small", "messages": QUESTION, "options": {"num_predict": 1500}}
    with httpx.stream("POST", f"{server.root}/api/chat", json=body, timeout=300) as reply:
        next(reply.iter_lines())
    wait_until_idle(server)
