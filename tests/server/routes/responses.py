"""A question and a tool of the Responses API."""

from typing import Any

from tests.server.answer.structured import WEATHER

TOOL = {"type": "function", **WEATHER["function"]}


ASK: dict[str, Any] = {"model": "small", "input": "Name three colours.", "max_output_tokens": 24, "temperature": 0}
