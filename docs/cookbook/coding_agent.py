"""Checks that a server answers coding agents: a tool call by each of the APIs that they use.

pip install httpx
python docs/cookbook/coding_agent.py --url http://127.0.0.1:8000 --model coder
"""

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import httpx

QUESTION = "Which Python version does this project need? Read pyproject.toml."
PARAMETERS = {
    "type": "object", "properties": {"path": {"type": "string", "maxLength": 60}}, "required": ["path"],
    "additionalProperties": False,
}  # fmt: skip
FUNCTION = {"name": "read_file", "description": "Reads a file of the project.", "parameters": PARAMETERS}


def ask_chat(send: Callable[[str, Any], Any], model: str) -> Any:
    """As OpenCode, Qwen Code, Continue and aider ask."""
    body = {
        "model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 200,
        "tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required",
    }  # fmt: skip
    call = send("/v1/chat/completions", body)["choices"][0]["message"]["tool_calls"][0]
    return json.loads(call["function"]["arguments"])


def ask_responses(send: Callable[[str, Any], Any], model: str) -> Any:
    """As Codex asks."""
    body = {
        "model": model, "instructions": "You are a coding agent.", "input": QUESTION, "max_output_tokens": 200,
        "tools": [{"type": "function", **FUNCTION}], "tool_choice": "required", "store": False,
    }  # fmt: skip
    output = send("/v1/responses", body)["output"]
    return json.loads(next(item for item in output if item["type"] == "function_call")["arguments"])


def ask_messages(send: Callable[[str, Any], Any], model: str) -> Any:
    """As Claude Code asks."""
    tool = {"name": "read_file", "description": FUNCTION["description"], "input_schema": PARAMETERS}
    body = {
        "model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 200, "tools": [tool],
        "tool_choice": {"type": "any"},
    }  # fmt: skip
    content = send("/v1/messages", body)["content"]
    return next(block for block in content if block["type"] == "tool_use")["input"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="coder")
    given = parser.parse_args()
    key = os.environ.get("SUREFOOT_KEY", "none")

    def send(route: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(given.url + route, json=body, headers=headers, timeout=600).raise_for_status().json()

    for ask in (ask_chat, ask_responses, ask_messages):
        print(f"{ask.__doc__} read_file({ask(send, given.model)})")


if __name__ == "__main__":
    main()
