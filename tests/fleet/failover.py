"""Requests of all kinds, whose answers are broken off."""

from typing import Any

CHAT = {"model": "small", "messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 12}


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


TOOL = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}


CHAT_PATH, TEXT_PATH = "/v1/chat/completions", "/v1/completions"


STREAM = {"stream": True, "stream_options": {"include_usage": True}}


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": (CHAT_PATH, {**CHAT, **STREAM, "temperature": 0}),
    "without a seed": (CHAT_PATH, {**CHAT, **STREAM, "temperature": 1.3}),
    "three answers": (
        CHAT_PATH,
        {**CHAT, **STREAM, "n": 3, "logprobs": True, "top_logprobs": 3, "frequency_penalty": 0.7, "seed": 3},
    ),
    "stop strings": (CHAT_PATH, {**CHAT, **STREAM, "stop": ["and", "he ", "."], "seed": 5, "temperature": 1.2, "n": 2}),
    "schema": (
        CHAT_PATH,
        {
            **CHAT, **STREAM, "seed": 6, "max_tokens": 60, "temperature": 1.2,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        },
    ),
    "tools": (
        CHAT_PATH,
        {**CHAT, **STREAM, "seed": 7, "max_tokens": 90, "tools": [TOOL], "tool_choice": "required", "temperature": 1.1},
    ),
    "least length, bias": (
        CHAT_PATH,
        {**CHAT, **STREAM, "seed": 8, "min_tokens": 6, "logit_bias": {"2": 5, "300": -50}, "temperature": 1.5},
    ),
    "several prompts": (
        TEXT_PATH,
        {"model": "small", "prompt": ["One day", "The cat"], "n": 2, "max_tokens": 8, "logprobs": 2, "seed": 9}
        | STREAM,
    ),
    "echo": (TEXT_PATH, {"model": "small", "prompt": "One day", "echo": True, "max_tokens": 9, "seed": 4, **STREAM}),
    "messages": ("/v1/messages", {**CHAT, "stream": True, "temperature": 1.0}),
    "responses": ("/v1/responses", {"model": "small", "input": "One day", "max_output_tokens": 10, "stream": True}),
    "ollama": (
        "/api/chat", {"model": "small", "messages": CHAT["messages"], "options": {"num_predict": 10, "seed": 1}},
    ),
    "whole": (CHAT_PATH, {**CHAT, "n": 2, "logprobs": True, "top_logprobs": 2, "seed": 2, "repetition_penalty": 1.3}),
    "whole text": (TEXT_PATH, {"model": "small", "prompt": ["a", "b"], "max_tokens": 7, "seed": 2, "logprobs": 1}),
    "prompt logprobs": (
        TEXT_PATH, {"model": "small", "prompt": "One day", "echo": True, "logprobs": 2, "max_tokens": 5, "seed": 2},
    ),
    "embedding": ("/v1/embeddings", {"model": "small", "input": ["One day", "a cat"]}),
}  # fmt: skip
