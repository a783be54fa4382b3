"""One question, asked with the official client."""

from typing import Any

from openai import OpenAI

ASK = {"model": "small", "messages": [{"role": "user", "content": "Name three colours."}], "max_tokens": 24}


def ask(client: OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(**{**ASK, **more})
