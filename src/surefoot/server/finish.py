"""Why an answer ended, in the words of OpenAI's clients."""

from typing import Any

MEMORY = "memory"


def finish_fields(reason: str | None, has_calls: bool = False) -> dict[str, Any]:
    """Of a choice. Clients know no reason for a machine that is too small, so `stop_reason` says that it was not the
    request's own length."""
    if reason == MEMORY:
        return {"finish_reason": "length", "stop_reason": MEMORY}
    return {"finish_reason": "tool_calls" if has_calls and reason == "stop" else reason}


def is_cut(reason: str | None) -> bool:
    """Whether there would have been more."""
    return reason in ("length", MEMORY)
