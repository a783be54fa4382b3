"""Parameters of other servers' clients, and unknown parameters."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from anthropic import Anthropic
from anthropic import BadRequestError as ClaudeError
from hypothesis import given
from hypothesis import strategies as st
from openai import BadRequestError, OpenAI
from pydantic import ValidationError

from surefoot.server.errors import of_validation
from surefoot.server.schemas import dialects
from surefoot.server.schemas.base import Body
from surefoot.server.schemas.chat import ChatRequest
from surefoot.server.schemas.completions import CompletionRequest
from surefoot.server.schemas.dialects import noting_unknown, translate
from surefoot.server.schemas.messages import MessagesRequest
from surefoot.server.schemas.responses import ResponsesRequest
from tests.server.answer.structured import IN_PARIS, SCHEMA
from tests.server.process import Server
from tests.server.routes.chat import ASK, ask
from tests.server.routes.responses import ASK as RESPOND
from tests.stories import stories_gguf

PROMPT: dict[str, Any] = {"model": "small", "prompt": "One, two, three,", "temperature": 0, "max_tokens": 4}
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {**ASK, "max_tokens": 1}),
    ("/v1/completions", {**PROMPT, "max_tokens": 1}),
    ("/v1/responses", {**RESPOND, "max_output_tokens": 1}),
    ("/v1/messages", {"model": "small", "max_tokens": 1, "messages": IN_PARIS}),
    ("/v1/messages/count_tokens", {"model": "small", "messages": IN_PARIS}),
    ("/v1/embeddings", {"model": "small", "input": "a"}),
    ("/tokenize", {"prompt": "a"}),
    ("/detokenize", {"tokens": [5]}),
]
NAMES = [route for route, _ in ROUTES]


def post(server: Server, route: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.root}{route}", json=body, timeout=300)


# ---- parameters that nobody knows ----


@pytest.mark.parametrize(("route", "body"), ROUTES, ids=NAMES)
def test_unknown_parameters_are_told_of(server: Server, route: str, body: dict[str, Any]) -> None:
    before = server.metric("surefoot:ignored_parameters_total")
    reply = post(server, route, {**body, "frobnicate": 1, "twiddle": {"a": [1]}, "nothing": None})
    assert reply.status_code == 200, reply.text
    assert reply.headers["warning"] == '199 - "unknown parameter ignored: frobnicate, twiddle"'
    assert server.metric("surefoot:ignored_parameters_total") == before + 2
    assert "warning" not in post(server, route, body).headers


@pytest.mark.parametrize(("route", "body"), ROUTES[:4], ids=NAMES[:4])
def test_streams_begin_with_the_warning(server: Server, route: str, body: dict[str, Any]) -> None:
    reply = post(server, route, {**body, "stream": True, "frobnicate": 1})
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["warning"] == '199 - "unknown parameter ignored: frobnicate"'


def test_what_a_name_may_hold(server: Server) -> None:
    """Headers stay headers, and short."""
    hostile = {'a"\r\nSet-Cookie: x\\': 1, "ü世": 1, "z" * 100_000: 1, **{f"p{number}": 1 for number in range(1000)}}
    reply = post(server, "/v1/chat/completions", {**ASK, "max_tokens": 1, **hostile})
    assert reply.status_code == 200, reply.text
    assert "set-cookie" not in reply.headers
    assert re.fullmatch(
        r'199 - "unknown parameter ignored: [ !#-\[\]-~]{1,600} and 995 more"', reply.headers["warning"]
    )


@given(st.dictionaries(st.text().map("~{}".format), st.integers() | st.none()))
def test_every_warning_is_a_header(names: dict[str, Any]) -> None:
    with noting_unknown(is_strict=False) as unknown:
        ChatRequest.model_validate({**names, **ASK})
    if unknown.count:
        assert re.fullmatch(r'199 - "[ !#-\[\]-~]{1,700}"', unknown.warning)


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    made = Server(stories_gguf(), "--strict-parameters", "--pooling", "mean")
    yield made
    made.stop()


@pytest.mark.parametrize(("route", "body"), ROUTES, ids=NAMES)
def test_strict_parameters(strict: Server, route: str, body: dict[str, Any]) -> None:
    reply = post(strict, route, {**body, "frobnicate": 1})
    assert reply.status_code == 400
    assert "unknown parameter 'frobnicate'" in reply.json()["error"]["message"]
    harmless = {"nothing": None} if "tokenize" in route else {"nothing": None, "store": True}
    assert post(strict, route, {**body, **harmless}).status_code == 200


def test_strict_inside_of_parameters(strict: Server) -> None:
    for inside in ({"stream_options": {"frob": 1}}, {"response_format": {"type": "text", "frob": 1}}):
        reply = post(strict, "/v1/chat/completions", {**ASK, **inside})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"].endswith("frob")
    huge = post(strict, "/v1/chat/completions", {**ASK, "x" * 100_000: 1})
    assert huge.status_code == 400
    assert len(huge.content) < 1000


def test_lines_of_batches(client: OpenAI, server: Server) -> None:
    before = server.metric("surefoot:ignored_parameters_total")
    line = {
        "custom_id": "1",
        "method": "POST",
        "url": "/v1/completions",
        "body": {**PROMPT, "frobnicate": 1, "seed": -1},
    }
    file = client.files.create(file=("a.jsonl", json.dumps(line).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="1h")
    for _ in range(600):
        batch = client.batches.retrieve(batch.id)
        if batch.status not in ("validating", "in_progress", "finalizing"):
            break
        httpx.get(f"{server.root}/health")
    assert batch.request_counts.completed == 1
    assert server.metric("surefoot:ignored_parameters_total") == before + 1


# ---- parameters that cannot matter here ----

HARMLESS: list[dict[str, Any]] = [
    {"store": True}, {"store": False}, {"modalities": ["text"]}, {"verbosity": "low"}, {"n": None},
    {"prediction": {"type": "content", "content": "x"}}, {"prompt_cache_retention": "24h"}, {"truncation": "auto"},
    {"stream_options": {"include_usage": True}}, {"metadata": {"a": {"b": 1}}}, {"service_tier": "scale"},
    {"cache_prompt": True}, {"best_of": 1}, {"skip_special_tokens": True}, {"typical_p": 1.0}, {"mirostat": 0},
    {"guided_decoding_backend": "xgrammar"}, {"use_beam_search": False}, {"chat_template_kwargs": None},
    {"cache_control": {"type": "ephemeral"}}, {"context_management": {"edits": []}}, {"min_tokens": 0}, {"tools": []},
    {"grammar": ""}, {"add_generation_prompt": None},
]  # fmt: skip


@pytest.mark.parametrize("more", HARMLESS, ids=str)
def test_harmless_parameters(more: dict[str, Any]) -> None:
    """Also where unknown ones are refused; the request is the same as without."""
    for is_strict in (False, True):
        with noting_unknown(is_strict) as unknown:
            found = ChatRequest.model_validate({**ASK, **more})
        assert not unknown.count
        same = found.model_copy(
            update={name: None for name in more if name in ("stream_options", "service_tier", "tools")}
        )
        plain = ChatRequest.model_validate(ASK)
        kept = {"skip_special_tokens", "min_tokens"}
        assert same.model_dump(exclude=kept) == plain.model_dump(exclude=kept)


@pytest.mark.parametrize(
    "more", [{"best_of": 3}, {"typical_p": 0.9}, {"mirostat": 1}, {"use_beam_search": True}], ids=str
)
def test_values_that_would_matter_are_told_of(more: dict[str, Any]) -> None:
    with noting_unknown(is_strict=False) as unknown:
        ChatRequest.model_validate({**ASK, **more})
    assert unknown.names == list(more)


ODD: list[Any] = [
    None, 0, -1, 1.5, True, "x", [], ["a"], {}, {"type": []}, {"type": {}}, [{"type": []}], [[]], [None],
    [{"type": "image"}], {"type": "image"},
]  # fmt: skip
KINDS: list[tuple[type[Body], dict[str, Any]]] = [
    (ChatRequest, ASK),
    (CompletionRequest, PROMPT),
    (ResponsesRequest, RESPOND),
    (MessagesRequest, {"model": "small", "max_tokens": 1, "messages": IN_PARIS}),
]


def complaint(kind: type[Body], body: dict[str, Any]) -> str | None:
    try:
        with noting_unknown(is_strict=False):
            kind.model_validate(body)
    except ValidationError as error:
        return of_validation(error.errors()).message
    return None


@pytest.mark.parametrize(("kind", "body"), KINDS, ids=lambda value: getattr(value, "__name__", ""))
def test_odd_values_are_taken_or_refused_in_a_sentence(kind: type[Body], body: dict[str, Any]) -> None:
    """No name of any table and no field fails in another way, whatever its value."""
    tables = (dialects.HARMLESS, dialects.NEUTRAL, dialects.SYNONYMS, dialects.MINUS_ONE, dialects.FORMATS)
    names = set().union(*tables, dialects.VARIABLES, kind.model_fields, {"best_of", "messages", "input"})
    said: list[Any] = [[{"role": "user", "content": odd}] for odd in ODD] + [[{"type": odd}] for odd in ODD]
    for name in sorted(names):
        for odd in [*ODD, *(said if name in ("messages", "input") else ())]:
            message = complaint(kind, {**body, name: odd})
            assert message is None or 5 < len(message) < 700


def test_harmless_parameters_by_the_clients(client: OpenAI, server: Server) -> None:
    more = {"store": True, "modalities": ["text"], "verbosity": "low", "metadata": {"a": "b"}, "prompt_cache_key": "k"}
    raw = client.chat.completions.with_raw_response.create(
        **ASK, **more, prediction={"type": "content", "content": "a"}
    )
    assert "warning" not in raw.headers
    more = {"store": True, "truncation": "auto", "include": ["reasoning.encrypted_content"], "max_tool_calls": 3}
    raw = client.responses.with_raw_response.create(**RESPOND, **more, stream_options={"include_obfuscation": False})
    assert "warning" not in raw.headers
    claude = Anthropic(base_url=server.root, api_key="none", max_retries=0, timeout=300)
    raw = claude.beta.messages.with_raw_response.create(
        model="small", max_tokens=2, messages=IN_PARIS, betas=["x"], metadata={"user_id": "u" * 400},
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]}, cache_control={"type": "ephemeral"},
        thinking={"type": "adaptive"}, output_config={"effort": "high"},
    )  # fmt: skip
    assert "warning" not in raw.headers


# ---- other servers' names ----


def test_minus_one(client: OpenAI, strict: Server) -> None:
    plain = ask(client, temperature=0).choices[0].message.content
    assert ask(client, temperature=0, extra_body={"top_k": -1, "seed": -1}).choices[0].message.content == plain
    for route in ("/v1/chat/completions", "/v1/completions"):  # the latter's default would be 16 tokens
        body = {"messages": ASK["messages"]} if "chat" in route else {"prompt": "Once"}
        reply = post(strict, route, {"model": "small", **body, "max_tokens": -1, "ignore_eos": True}).json()
        assert reply["usage"]["total_tokens"] == context_of(strict)


def context_of(server: Server) -> int:
    return httpx.get(f"{server.root}/v1/models/small").json()["max_model_len"]


def test_synonyms(client: OpenAI) -> None:
    body = {"model": "small", "prompt": PROMPT["prompt"], "seed": 3}
    usual = client.completions.create(**body, max_tokens=7, extra_body={"repetition_penalty": 1.3})
    other = client.completions.create(**body, extra_body={"n_predict": 7, "repeat_penalty": 1.3})
    assert other.choices[0].text == usual.choices[0].text
    assert other.usage.completion_tokens == 7


@pytest.mark.parametrize(("route", "body"), ROUTES[:4], ids=NAMES[:4])
def test_max_tokens_beyond_the_context(strict: Server, route: str, body: dict[str, Any]) -> None:
    name = "max_output_tokens" if "responses" in route else "max_tokens"
    reply = post(strict, route, {**body, name: 2**31 - 1})
    assert reply.status_code == 200, reply.text
    usage = reply.json()["usage"]
    assert 0 < usage.get("completion_tokens", usage.get("output_tokens")) <= context_of(strict)


@pytest.mark.parametrize(
    ("more", "pattern"),
    [
        ({"guided_json": SCHEMA}, r'\{"name": .*'),
        ({"guided_json": json.dumps(SCHEMA)}, r'\{"name": .*'),
        ({"guided_regex": "(yes|no): [a-z]{3}"}, "(yes|no): [a-z]{3}"),
        ({"guided_choice": ["a.b (1)", "c|d"]}, r"a\.b \(1\)|c\|d"),
        ({"guided_grammar": 'start: "A" /[0-9]{2}/'}, "A[0-9]{2}"),
        ({"grammar": 'root ::= "A" digit digit\ndigit ::= [0-9]'}, "A[0-9]{2}"),
        ({"json_schema": SCHEMA}, r'\{"name": .*'),
        ({"structured_outputs": {"choice": ["left", "right"]}}, "left|right"),
        ({"structured_outputs": {"json": SCHEMA}}, r'\{"name": .*'),
        ({"structured_outputs": {"regex": "[ab]{4}"}}, "[ab]{4}"),
        ({"structured_outputs": {"grammar": 'root ::= "x" | "y"'}}, "x|y"),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, r'\{"name": .*'),
    ],
    ids=lambda value: str(value)[:40],
)
def test_formats(client: OpenAI, more: dict[str, Any], pattern: str) -> None:
    for text in (
        ask(client, extra_body=more, max_tokens=60).choices[0].message.content,
        client.completions.create(**{**PROMPT, "max_tokens": 60}, extra_body=more).choices[0].text,
    ):
        assert re.fullmatch(pattern, text, re.DOTALL), text


@pytest.mark.parametrize(
    "more",
    [
        {"guided_json": "{"}, {"guided_json": "[" * 100_000}, {"guided_choice": [1]}, {"guided_choice": [""]},
        {"guided_regex": "a", "guided_choice": ["a"]}, {"guided_regex": 5}, {"structured_outputs": {"frob": 1}},
        {"guided_regex": "a", "response_format": {"type": "json_object"}}, {"grammar": "root ::= ("},
        {"grammar": "root ::= " + "(" * 10_000}, {"grammar": "root ::= " + '"a" ' * 100_000}, {"structured_outputs": 5},
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_bad_formats(server: Server, more: dict[str, Any]) -> None:
    reply = post(server, "/v1/chat/completions", {**ASK, **more})
    assert reply.status_code == 400, reply.text
    assert 10 < len(reply.json()["error"]["message"]) < 600


def test_claude_asks_for_a_schema(server: Server) -> None:
    claude = Anthropic(base_url=server.root, api_key="none", max_retries=0, timeout=300)
    wanted = {"format": {"type": "json_schema", "schema": SCHEMA}}
    reply = claude.messages.create(
        model="small", max_tokens=60, messages=IN_PARIS, extra_body={"output_config": wanted}
    )
    assert set(json.loads(reply.content[0].text)) == {"name", "age"}


def test_min_tokens(strict: Server, server: Server) -> None:
    body = {**PROMPT, "return_token_ids": True, "max_tokens": 30}
    free = post(strict, "/v1/completions", body).json()["choices"][0]["token_ids"]
    stopped = {**body, "stop_token_ids": free[2:4]}
    early = post(strict, "/v1/completions", stopped).json()["choices"][0]
    assert (early["finish_reason"], len(early["token_ids"])) == ("stop", 3)
    held = post(strict, "/v1/completions", {**stopped, "min_tokens": 12}).json()["choices"][0]["token_ids"]
    assert len(held) > 12
    assert not set(free[2:4]) & set(held[:12])
    assert held[:2] == free[:2]
    reply = post(server, "/v1/chat/completions", {**ASK, "min_tokens": 5, "guided_choice": ["a"]})
    assert reply.json()["choices"][0]["message"]["content"] == "a"
    assert "min_tokens" in reply.headers["warning"]


def test_special_tokens_in_the_text(client: OpenAI) -> None:
    """With its end held back and another token that means something forced, the text has it or not."""
    token = 1  # <|im_start|>
    more = {"logit_bias": {str(token): 100}, "max_tokens": 2, "temperature": 0}
    assert ask(client, **more).choices[0].message.content == ""
    shown = ask(client, **more, extra_body={"skip_special_tokens": False}).choices[0].message.content
    assert shown == "<|im_start|>" * 2


def test_enable_thinking() -> None:
    known = set(ChatRequest.model_fields)
    moved = translate({"enable_thinking": False, "chat_template_kwargs": {"a": 1}}, known)
    assert moved == {"chat_template_kwargs": {"enable_thinking": False, "a": 1}}
    kept = translate({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, known)
    assert kept == {"chat_template_kwargs": {"enable_thinking": True}}


def test_tools_that_a_server_would_run(client: OpenAI) -> None:
    raw = client.responses.with_raw_response.create(**RESPOND, tools=[{"type": "web_search"}])
    assert raw.headers["warning"] == '199 - "unknown parameter ignored: tools of type web_search"'
    assert raw.parse().output_text


# ---- what this model cannot see ----


def test_images_and_sound(client: OpenAI, server: Server) -> None:
    def said(*parts: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "user", "content": list(parts)}]

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(BadRequestError, match="this model sees no images"):
        ask(client, messages=said({"type": "text", "text": "What is it?"}, image))
    with pytest.raises(BadRequestError, match="this model hears no sound"):
        ask(client, messages=said({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}))
    with pytest.raises(BadRequestError, match="this model sees no images"):
        client.responses.create(
            model="small", input=said({"type": "input_image", "image_url": "data:,", "detail": "auto"})
        )
    claude = Anthropic(base_url=server.root, api_key="none", max_retries=0)
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "image", "source": source}]}
    with pytest.raises(ClaudeError, match="this model sees no images"):
        claude.messages.create(model="small", max_tokens=1, messages=said({"type": "image", "source": source}))
    assert claude.messages.create(model="small", max_tokens=1, messages=said(result)), "a tool's, not the user's"
