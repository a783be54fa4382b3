"""What coding agents send: nothing in their history is refused. The requests are our own, in their forms."""

import json
from typing import Any

import httpx
import pytest

from tests.server.process import Server
from tests.smollm2 import find_file
from tests.waiting import wait_for

Json = dict[str, Any]
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}
NOTE = {
    "type": "document",
    "title": "Notes",
    "source": {"type": "text", "media_type": "text/plain", "data": "Buy tea."},
}
HELLO = {"role": "user", "content": "Hello"}
PATCH = 'start: "BEGIN\\n" line line? "END\\n"\nline: "+" /[a-z ]{1,9}/ "\\n"'


def post(server: Server, route: str, body: Json) -> httpx.Response:
    return httpx.post(server.root + route, json={"model": "small", **body}, timeout=300)


def message(server: Server, *messages: Json, **more: Any) -> httpx.Response:
    return post(server, "/v1/messages", {"messages": messages, "max_tokens": 2, **more})


def response(server: Server, items: Any, **more: Any) -> httpx.Response:
    return post(server, "/v1/responses", {"input": items, "max_output_tokens": 2, **more})


def read_by_model(server: Server, messages: list[Json]) -> str:
    """The prompt's text: what the model gets, as /tokenize and /detokenize tell."""
    tokens = post(server, "/tokenize", {"messages": messages}).json()["tokens"]
    return str(post(server, "/detokenize", {"tokens": tokens}).json()["prompt"])


TOOL_USE = {"type": "tool_use", "id": "t1", "name": "mcp__files:read.v2", "input": {}}
SEARCH = [
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tea"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1",
     "content": [{"type": "web_search_result", "title": "Tea", "url": "http://tea", "encrypted_content": "x"}]},
    {"type": "mcp_tool_use", "id": "m1", "name": "list", "server_name": "a", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "m1", "content": [{"type": "text", "text": "two files"}]},
    {"type": "web_fetch_tool_result", "tool_use_id": "f", "content": {"type": "web_fetch_result", "content": NOTE}},
    {"type": "tool_search_tool_result", "tool_use_id": "f", "content": {"type": "tool_search_tool_search_result"}},
    {"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "hm", "signature": "x"},
    {"type": "compaction", "content": "So far."},
]  # fmt: skip
RESULT = {
    "type": "tool_result", "tool_use_id": "t1",
    "content": [PNG, NOTE, {"type": "tool_reference", "tool_name": "Bash"},
                {"type": "search_result", "source": "s", "title": "T", "content": [{"type": "text", "text": "found"}]}],
}  # fmt: skip


def test_a_history_of_messages_is_never_refused(server: Server) -> None:
    history = [
        {"role": "user", "content": [PNG, PDF, NOTE, {"type": "text", "text": "Look."}]},
        {"role": "system", "content": "A note in between."},
        {"role": "assistant", "content": [*SEARCH, {"type": "text", "text": "Well."}, TOOL_USE]},
        {"role": "user", "content": [RESULT, PNG]},
        {"role": "system", "content": [{"type": "text", "text": "The last word."}]},
    ]
    for end in (len(history), len(history) - 1):
        reply = message(server, *history[:end], tools=[{"name": TOOL_USE["name"], "input_schema": {"type": "object"}}])
        assert reply.status_code == 200, reply.text
        assert "warning" not in reply.headers
    counted = post(server, "/v1/messages/count_tokens", {"messages": history}).json()["input_tokens"]
    assert counted > 100


def test_a_block_that_is_not_known_is_named(server: Server) -> None:
    reply = message(
        server, {"role": "user", "content": [{"type": "hologram", "data": 1}, {"type": "text", "text": "a"}]}
    )
    assert reply.status_code == 200
    assert reply.headers["warning"] == '199 - "unknown parameter ignored: blocks of type hologram"'
    reply = response(server, [{"type": "hologram"}, HELLO])
    assert reply.headers["warning"] == '199 - "unknown parameter ignored: items of type hologram"'


@pytest.mark.parametrize(("block", "words"), [(PNG, "sees no images"), (PDF, "reads no files")])
def test_what_the_user_has_just_sent_is_refused_once(server: Server, block: Json, words: str) -> None:
    sent = {"role": "user", "content": [block]}
    reply = message(server, sent)
    assert reply.status_code == 400
    assert reply.json()["error"] == {
        "type": "invalid_request_error", "message": f"messages: this model {words}: send text alone"
    }  # fmt: skip
    assert message(server, sent, {"role": "user", "content": "And without?"}).status_code == 200


def test_images_in_the_history_of_chats(server: Server) -> None:
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen = {"role": "user", "content": [{"type": "text", "text": "See: "}, url]}
    assert post(server, "/v1/chat/completions", {"messages": [seen]}).status_code == 400
    messages = [seen, {"role": "developer", "content": "Be brief."}, HELLO]
    assert post(server, "/v1/chat/completions", {"messages": messages, "max_tokens": 2}).status_code == 200
    assert "See: [image: this model sees no images]" in read_by_model(server, messages)
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    assert response(server, [{"role": "user", "content": [image]}]).status_code == 400
    assert response(server, [{"role": "user", "content": [image]}, HELLO]).status_code == 200


ITEMS: list[Json] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}, HELLO,
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
    {"type": "custom_tool_call", "call_id": "c1", "name": "edit", "input": "BEGIN"},
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    {"type": "function_call", "call_id": "c2", "namespace": "git", "name": "log", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_image", "image_url": "data:,"}]},
    {"type": "local_shell_call", "call_id": "c3", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "c3", "output": "a.txt"},
    {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "c4", "output": [{"stdout": "a", "stderr": "", "outcome": {}}]},
    {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "tea"}},
    {"type": "compaction", "encrypted_content": "x"}, {"type": "item_reference", "id": "msg_1"},
    {"role": "system", "content": "Late."}, {"role": "user", "content": "Go on."},
]  # fmt: skip
GIT = {"type": "namespace", "name": "git", "description": "History",
       "tools": [{"type": "function", "name": "log", "parameters": {"type": "object", "properties": {}}}]}  # fmt: skip
EDIT = {"type": "custom", "name": "edit", "format": {"type": "grammar", "syntax": "lark", "definition": PATCH}}


def test_a_history_of_items_is_never_refused(server: Server) -> None:
    reply = response(server, ITEMS, tools=[GIT, EDIT])
    assert reply.status_code == 200, reply.text
    assert "warning" not in reply.headers


def test_tools_of_a_namespace_keep_both_names(server: Server) -> None:
    chosen = {"type": "function", "namespace": "git", "name": "log"}
    ask = {"tools": [GIT, EDIT], "tool_choice": chosen, "max_output_tokens": 40, "temperature": 0}
    (call,) = response(server, [HELLO], **ask).json()["output"]
    assert (call["type"], call["namespace"], call["name"], call["arguments"]) == ("function_call", "git", "log", "{}")
    again = [HELLO, call, {"type": "function_call_output", "call_id": call["call_id"], "output": "none"}]
    assert response(server, again, tools=[GIT, EDIT]).status_code == 200


def test_custom_tools_are_held_to_their_grammar(server: Server) -> None:
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "edit"}]}
    ask = {"tools": [GIT, EDIT], "max_output_tokens": 200, "temperature": 0}
    for choice in ({"type": "custom", "name": "edit"}, allowed):
        (call,) = response(server, [HELLO], **ask, tool_choice=choice).json()["output"]
        assert (call["type"], call["name"]) == ("custom_tool_call", "edit")
        lines = call["input"].splitlines()
        assert (lines[0], lines[-1]) == ("BEGIN", "END")
        assert all(line.startswith("+") for line in lines[1:-1])
    streamed = response(server, [HELLO], **ask, tool_choice=allowed, stream=True).text
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    pieces = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(pieces) == call["input"]  # how many depends on how fast the client reads
    assert streamed.count("event: response.custom_tool_call_input.done") == 1
    custom = {"type": "custom", "custom": {"name": "edit", "format": {
        "type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-c]{3}"}}}}  # fmt: skip
    chat = {"messages": [HELLO], "tools": [custom], "tool_choice": {"type": "custom", "custom": {"name": "edit"}}}
    choice = post(server, "/v1/chat/completions", {**chat, "max_tokens": 60}).json()["choices"][0]
    (called,) = choice["message"]["tool_calls"]
    assert (called["type"], called["custom"]["name"], len(called["custom"]["input"])) == ("custom", "edit", 3)
    again = [HELLO, choice["message"], {"role": "tool", "tool_call_id": called["id"], "content": "ok"}]
    assert post(server, "/v1/chat/completions", {**chat, "messages": again, "max_tokens": 2}).status_code == 200


def test_only_allowed_tools_are_called(server: Server) -> None:
    nothing = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}
    reply = response(server, [HELLO], tools=[GIT], tool_choice=nothing)
    assert reply.status_code == 400
    assert "none of the allowed tools" in reply.json()["error"]["message"]
    assert response(server, [HELLO], tools=[GIT], tool_choice={**nothing, "mode": "auto"}).status_code == 200


def test_many_tools_with_long_names(server: Server) -> None:
    named = "mcp__a:b." + "n" * 119
    tools = [{"name": name, "input_schema": {}} for name in (named, "other")]
    ask = {"tool_choice": {"type": "tool", "name": named}, "max_tokens": 100, "temperature": 0}
    assert message(server, HELLO, tools=tools, **ask).json()["content"][0]["name"] == named
    many = [{"name": f"t{number}", "input_schema": {}} for number in range(512)]
    assert "prompt is too long" in message(server, HELLO, tools=many).json()["error"]["message"]
    reply = message(server, HELLO, tools=[*many, {"name": "one_more", "input_schema": {}}])
    assert "at most 512" in reply.json()["error"]["message"]


LONG = {"role": "user", "content": "word " * 3000}


def test_an_overflow_in_words_that_agents_know(server: Server) -> None:
    reply = message(server, LONG)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (400, "invalid_request_error")
    count = int(error["message"].removeprefix("prompt is too long: ").split(" ")[0])
    assert error["message"] == f"prompt is too long: {count} tokens > 2047 maximum"
    sentence = (
        f"This model's maximum context length is 2047 tokens. However, your messages resulted in {count} tokens. "
        "Please reduce the length of the messages, or shorten the input."
    )
    expected = {"message": sentence, "type": "invalid_request_error", "param": "messages",
                "code": "context_length_exceeded"}  # fmt: skip
    for route, body in (("/v1/chat/completions", {"messages": [LONG]}), ("/v1/responses", {"input": [LONG]})):
        assert post(server, route, body).json()["error"] == expected
    text = post(server, "/api/chat", {"messages": [LONG]}).json()["error"]
    assert text == f"the input length exceeds the context length: {count} tokens > 2047 maximum"


STABLE = "You help with a project that has many rules. " * 20


def billed(server: Server, session: str, **more: Any) -> Json:
    header = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={session};"}
    system = [header, {"type": "text", "text": STABLE}]
    usage: Json = message(server, HELLO, system=system, **more).json()["usage"]
    return usage


def test_two_sessions_share_their_prefix(server: Server) -> None:
    first, second = billed(server, "aaaa"), billed(server, "bbbb, a longer one")
    total = second["input_tokens"] + second["cache_read_input_tokens"]
    assert total == first["input_tokens"] + first["cache_read_input_tokens"]
    assert second["cache_read_input_tokens"] >= total - 16
    assert (first["left_out_characters"], second["left_out_characters"]) == (51, 65)
    plain = message(server, HELLO, system=STABLE).json()["usage"]
    assert plain["left_out_characters"] == 0
    assert plain["cache_read_input_tokens"] == second["cache_read_input_tokens"]
    assert billed(server, "cccc", normalise=False)["left_out_characters"] == 0
    as_sent = billed(server, "dddd", normalise=False)
    assert as_sent["input_tokens"] > total // 2, "the line stands at the head and differs"


def in_folder(server: Server, folder: str, **more: Any) -> tuple[int, int]:
    """Tokens of a prompt whose second block of system text names the folder, and those of them that were cached."""
    tool = {"name": "Read", "description": STABLE, "input_schema": {"type": "object", "properties": {}}}
    system = [{"type": "text", "text": text} for text in ("You are an agent.", f"The folder is {folder}. {STABLE}")]
    usage = message(server, HELLO, system=system, tools=[tool], **more).json()["usage"]
    cached: int = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached, cached


def test_tools_stand_before_the_system_text_that_names_a_folder(server: Server) -> None:
    in_folder(server, "/home/green")
    total, cached = in_folder(server, "/home/blue")
    assert cached > 200, "the tool's description"
    assert cached < total - 200, "not what follows the folder's name"
    in_folder(server, "/home/green", normalise=False)
    assert in_folder(server, "/home/blue", normalise=False)[1] < 100


def test_an_aborted_prefill_keeps_what_it_computed() -> None:
    """And a retry says so in its usage."""
    server = Server(find_file(), "--max-context", "2048", "--max-running", "2")
    try:
        body = {"model": "small", "messages": [{"role": "user", "content": "A b c d e f g. " * 120}], "max_tokens": 2}
        with httpx.stream("POST", f"{server.root}/v1/messages", json={**body, "stream": True}, timeout=300) as reply:
            lines = reply.iter_lines()  # once it is gone, so is the connection
            assert next(lines) == "event: message_start"
            wait_for(lambda: server.metric("vllm:iteration_tokens_total_sum") > 200)
        wait_for(lambda: server.metric("surefoot:requests_in_server") == 0)
        assert server.metric("vllm:generation_tokens_total") == 0, "it was aborted before its first token"
        usage = message(server, *body["messages"]).json()["usage"]
        assert usage["cache_read_input_tokens"] > 128
    finally:
        server.stop()
