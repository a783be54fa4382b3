"""Points 1.3 and 1.4: requests as programs send them that cannot run here.

They are written after what the programs' sources and issue trackers show. They are no recordings.
"""

import copy
import json
from typing import Any

import httpx
import pytest

from tests.server.process import Server

FUNCTION = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CLOSED = {"$schema": "https://json-schema.org/draft/2020-12/schema", **FUNCTION, "additionalProperties": False}
ONCE = {"type": "ephemeral"}

CLAUDE_CODE = {
    "model": "small", "max_tokens": 32_000, "stream": True, "temperature": 1,
    "system": [
        {"type": "text", "text": "You are a command line program."},
        {"type": "text", "text": "Be brief.", "cache_control": {**ONCE, "ttl": "1h"}},
    ],
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>None.</system-reminder>"},
            {"type": "text", "text": "List the files.", "cache_control": ONCE},
        ]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}, "caller": {"type": "x"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a"}]},
        ]},
    ],
    "tools": [
        {"name": "Bash", "description": "Runs.", "input_schema": CLOSED, "eager_input_streaming": True},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ],
    "metadata": {"user_id": json.dumps({"device_id": "d" * 64, "session_id": "s" * 36, "account": "a" * 200})},
    "thinking": {"type": "adaptive", "budget_tokens": 0}, "output_config": {"effort": "medium"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
}  # fmt: skip

CODEX = {
    "model": "small", "instructions": "You are a coding agent.", "stream": True, "store": False, "tool_choice": "auto",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Ask first."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
        {"type": "function_call", "name": "shell", "arguments": '{"command": "ls"}', "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a"},
    ],
    "tools": [
        {"type": "function", "name": "shell", "description": "Runs.", "strict": False, "parameters": FUNCTION},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "definition": "start: x"}},
        {"type": "web_search", "external_web_access": False},
        {"type": "namespace", "name": "mcp__files", "tools": [{"type": "function", "name": "read"}]},
    ],
    "parallel_tool_calls": True, "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "low"},
    "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "client_metadata": {"x": "y"},
}  # fmt: skip

CONTINUE = {
    "model": "small", "prompt": "def add(a, b):\n", "stream": True, "max_tokens": 256, "temperature": 0.01,
    "stop": [f"<stop {number}>" for number in range(24)], "suffix": "", "raw": None,
}  # fmt: skip

LIBRE_CHAT = {
    "model": "small", "user": "u1", "stream": True, "stream_options": {"include_usage": True}, "temperature": 1,
    "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "max_tokens": 100_000, "messages": [
        {"role": "user", "name": "A_B", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": "Hi.", "annotations": None, "audio": None, "refusal": None},
        {"role": "user", "content": "Go on."},
    ],
}  # fmt: skip

OPEN_WEBUI = {
    "model": "small", "stream": True, "max_completion_tokens": 1000, "seed": -1, "top_k": -1, "repeat_penalty": 1.1,
    "tfs_z": 1, "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5.0, "keep_alive": "5m", "messages": [
        {"role": "system", "content": ""}, {"role": "user", "content": "Hello", "id": "1", "timestamp": 1},
    ],
    "metadata": {"task": "title_generation", "task_body": {"messages": []}, "chat_id": "c"},
}  # fmt: skip

LM_EVAL = {
    "model": "small", "stream": True, "max_tokens": 256, "temperature": 0.0, "stop": ["\n\n", "</s>"], "seed": 1234,
    "messages": [{"role": "user", "content": "1 + 1 =", "type": "text"}],
}  # fmt: skip

BODIES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "claude code": ("/v1/messages?beta=true", CLAUDE_CODE, "tools of type web_search_20250305"),
    "codex": ("/v1/responses", CODEX, "tools of type custom, tools of type web_search, tools of type namespace"),
    "continue": ("/v1/completions", CONTINUE, None),
    "librechat": ("/v1/chat/completions", LIBRE_CHAT, None),
    "open-webui": ("/v1/chat/completions", OPEN_WEBUI, None),
    "lm-eval": ("/v1/chat/completions", LM_EVAL, None),
}


@pytest.mark.parametrize("name", BODIES)
def test_1_4_programs_are_answered(server: Server, name: str) -> None:
    """The first event is enough: closing the stream ends the request."""
    route, body, ignored = copy.deepcopy(BODIES[name])
    with httpx.stream("POST", f"{server.root}{route}", json=body, timeout=60) as reply:
        assert reply.status_code == 200, reply.read()
        first = next(line for line in reply.iter_lines() if line.startswith("data: "))
        assert "error" not in json.loads(first.removeprefix("data: ")) or '"error":null' in first
        assert reply.headers.get("warning") == (ignored and f'199 - "unknown parameter ignored: {ignored}"')
