"""What an answer of an upstream costs, and what it may cost at most. Amounts are whole millionths of the currency in
which the prices are given, rounded up."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from surefoot.front.usage import MOST_COUNT, TokenUsage

MILLION = 1_000_000
TEMPLATE_TOKENS = 1024  # that the upstream adds at most: its own instructions, also those for tools
LIMITS = ("max_tokens", "max_completion_tokens")
# What a message may have so that its bytes bound its tokens: a picture's address is shorter than the picture.
COUNTED = frozenset(("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "reasoning_content"))
COUNTED_PARTS = ("text", "refusal")


def millionths(amount: float) -> int:
    return round(amount * MILLION)


@dataclass(frozen=True)
class MostTokens:
    """The most that one request may take."""

    prompt: int
    limit: int | None  # tokens of each answer; None: the request names no limit
    num_answers: int = 1


@dataclass(frozen=True)
class Price:
    prompt: float  # of a million tokens
    answer: float
    longest_answer: int | None = None  # tokens that the upstream gives at most; None: not known

    def of(self, usage: TokenUsage) -> int:
        return ceil(self.prompt * usage.prompt + self.answer * usage.answer)

    def most(self, tokens: MostTokens | None) -> int | None:
        """None: there is no bound."""
        limit = (tokens.limit or self.longest_answer) if tokens is not None else None
        if tokens is None or limit is None:
            return None
        return self.of(TokenUsage(tokens.prompt, limit * tokens.num_answers))


def most_tokens(given: Mapping[str, Any], num_bytes: int) -> MostTokens | None:
    """Of a request of Chat Completions. No token is shorter than a byte, and the body has more bytes for each message
    and tool than templates have tokens around it. None: it has something else than text, or an invalid limit."""
    limits = [given[name] for name in LIMITS if given.get(name) is not None]
    num_answers: Any = given.get("n") if given.get("n") is not None else 1
    if not all(type(number) is int and 0 < number < MOST_COUNT for number in (*limits, num_answers)):
        return None
    if not _all(given.get("messages"), _is_text) or not _all(given.get("tools") or [], _is_function):
        return None
    return MostTokens(num_bytes + TEMPLATE_TOKENS, max(limits, default=None), num_answers)


def _all(values: Any, holds: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, dict) and holds(value) for value in values)


def _is_text(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    is_text = content is None or isinstance(content, str) or _all(content, _is_text_part)
    return is_text and message.keys() <= COUNTED


def _is_text_part(part: Mapping[str, Any]) -> bool:
    return part.get("type") in COUNTED_PARTS


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "function"
