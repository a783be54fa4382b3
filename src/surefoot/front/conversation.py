"""The texts of a request's body, whatever its API."""

from collections.abc import Iterator, Mapping
from typing import Any

CONVERSATIONS = ("messages", "input", "input_prefix", "prompt", "input_suffix")  # fields, in the words of all APIs
SYSTEM = ("system", "developer")
# Fields of a message that say nothing, and may differ between APIs and turns.
LABELS = frozenset(
    ("role", "type", "id", "name", "status", "call_id", "tool_call_id", "tool_use_id", "item_id", "cache_control")
)


def messages_in(given: Mapping[str, Any]) -> Iterator[str]:
    """The text of each message that has one. System messages are left out: programs change them from turn to turn."""
    for name in CONVERSATIONS:
        value = given.get(name)
        for message in value if isinstance(value, list) else [value]:
            if not (isinstance(message, dict) and message.get("role") in SYSTEM):
                text = "".join(_content(message)).strip()
                if text:
                    yield text


def _content(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _content(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in LABELS:
                yield from _content(item)


def texts_in(value: Any) -> Iterator[str]:
    """Every text, key and number."""
    if isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts_in(item)
    elif value is not None:
        yield str(value)
