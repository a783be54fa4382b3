"""Finish reasons in the words of OpenAI's clients."""

from typing import Any

MEMORY = "memory"


def finish_fields(reason: str | None, has_calls: bool = False) -> dict[str, Any]:
    """A choice's fields. OpenAI has no reason for lack of memory: the finish_reason is `length`, and `stop_reason` says
    that the machine, not the request, set the limit."""
    if reason == MEMORY:
        return {"finish_reason": "length", "stop_reason": MEMORY}
    return {"finish_reason": "tool_calls" if has_calls and reason == "stop" else reason}


def is_cut(reason: str | None) -> bool:
    """Whether the answer was cut off before its end."""
    return reason in ("length", MEMORY)
