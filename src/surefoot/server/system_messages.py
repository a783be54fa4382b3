"""System messages for templates that allow none, or none but the first.

Such a template refuses the conversation, or moves the text to the front, which would change the beginning of every
later prompt. So a late system message joins the user's message before it: what comes before stays cached.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

Json = dict[str, Any]
_FIRST = (("system", "one"), ("user", "two"))
_SEVERAL = (*_FIRST, ("system", "three"), ("assistant", "four"), ("system", "five"), ("user", "six"))


@dataclass(frozen=True)
class SystemPlaces:
    """Where a template writes system messages in the order in which they are said."""

    first: bool  # at the beginning
    late: bool  # anywhere

    @classmethod
    def probe(cls, render: Callable[[Sequence[Json]], str]) -> "SystemPlaces":
        """By trials. render: raises ValueError where the template refuses."""
        return cls(_keeps(render, _FIRST), _keeps(render, _SEVERAL))


def _keeps(render: Callable[[Sequence[Json]], str], said: Sequence[tuple[str, str]]) -> bool:
    marks = [f"Qx{word}xQ" for _, word in said]
    messages = [{"role": role, "content": mark} for (role, _), mark in zip(said, marks, strict=True)]
    try:
        text = render(messages)
    except ValueError:
        return False
    places = [text.find(mark) for mark in marks]
    return min(places) >= 0 and places == sorted(places) and all(text.count(mark) == 1 for mark in marks)


def placed(messages: Sequence[Json], places: SystemPlaces) -> list[Json]:
    """The conversation with system messages only where the template writes them."""
    if places.late:
        return [*messages]
    num_first = sum(1 for _ in takewhile(_is_system, messages))
    firsts, rest = messages[:num_first], messages[num_first:]
    found: list[Json] = []
    if firsts and places.first:
        found = [{"role": "system", "content": "\n\n".join(message["content"] for message in firsts)}]
    for message in rest if places.first else messages:
        found.append(_as_user(message) if _is_system(message) else message)
    return _joined(found)


def _is_system(message: Json) -> bool:
    return bool(message["role"] == "system")


def _as_user(message: Json) -> Json:
    return {"role": "user", "content": f"<system>\n{message['content']}\n</system>", "_late": True}


def _joined(messages: Sequence[Json]) -> list[Json]:
    """A message that was the system's joins the user's before it, or else the user's after it."""
    found: list[Json] = []
    for message in messages:
        last = found[-1] if found else None
        if last is not None and last["role"] == message["role"] == "user" and ("_late" in message or "_late" in last):
            found[-1] = {**last, "content": f"{last['content']}\n\n{message['content']}"}
            if "_late" not in message:
                found[-1].pop("_late")
        else:
            found.append(dict(message))
    for message in found:
        message.pop("_late", None)
    return found
