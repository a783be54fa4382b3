"""`surefoot warm --agent`: a running server computes an agent's tools and rules ahead."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.cli.agent_recorder import Recorded

SILENCE_S = 600.0  # streams send a sign of life every few seconds
MOST_ERROR = 500  # bytes
LIMITS = {"/messages": "max_tokens", "/responses": "max_output_tokens", "/chat/completions": "max_tokens"}


@dataclass(frozen=True)
class Warmed:
    num_tokens: int  # of the prompt
    num_cached: int  # that the server knew before


def warm_server(
    root: str, key: str | None, model: str, recorded: Recorded, report: Callable[[int, int], None]
) -> Warmed:
    """Has the server compute the prompt at the priority of those who can wait. report: tokens done, and in total."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(root + recorded.path, json.dumps(_brief(recorded, model)).encode(), headers)
    usage: dict[str, Any] = {}
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_S) as reply:
            for event in _events(reply):
                inner = event.get("response") or event.get("message") or event
                if "error" in event or inner.get("error"):
                    raise ValueError(f"the server failed: {event.get('error') or inner['error']}")
                if progress := inner.get("prompt_progress"):
                    report(progress["processed"], progress["total"])
                usage |= inner.get("usage") or event.get("usage") or {}
    except urllib.error.HTTPError as error:
        raise ValueError(f"{root} answers {error.code}: {error.read(MOST_ERROR).decode(errors='replace')}") from None
    except urllib.error.URLError as error:
        raise ValueError(f"no server answers at {root} ({error.reason}): start one, or give --url") from None
    return _warmed(usage)


def _brief(recorded: Recorded, model: str) -> dict[str, Any]:
    """The request, with an answer of one token."""
    limit = next(name for end, name in LIMITS.items() if recorded.path.endswith(end))
    body = {name: value for name, value in recorded.body.items() if name != "max_completion_tokens"}
    body |= {"model": model, "stream": True, "service_tier": "flex", limit: 1}
    return body | ({"stream_options": {"include_usage": True}} if "/chat/" in recorded.path else {})


def _events(reply: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in reply:
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


def _warmed(usage: Mapping[str, Any]) -> Warmed:
    if "cache_read_input_tokens" in usage:
        cached = usage["cache_read_input_tokens"]
        return Warmed(usage["input_tokens"] + cached, cached)
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details") or {}
    return Warmed(usage.get("input_tokens") or usage.get("prompt_tokens") or 0, details.get("cached_tokens", 0))
