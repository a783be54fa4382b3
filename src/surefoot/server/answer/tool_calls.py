"""Tool calls in a model's own form: which form that is, and conversations with calls as its template takes them.

A model whose template shows one of the forms of call_forms.py is held to that form. For any other, a system message
describes the tools, and calls have the form of Hermes.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.core.json_bounds import json_excess
from surefoot.server.answer.call_forms import HERMES, CallForm, find_form
from surefoot.server.answer.channels import TOKENS, uses_channels
from surefoot.server.answer.parsing import END_THINK, arguments_of
from surefoot.server.errors import bad_request

Json = dict[str, Any]
_SHORT = re.compile(r"[a-zA-Z0-9]{9}")

INSTRUCTIONS = """# Tools

You may call one or more functions to help with the user's request. These are the functions:
<tools>
{tools}
</tools>

For each call, write the function's name and arguments {how}:
{example}"""
_EXAMPLE = {"name": "FUNCTION", "id": "000000000", "arguments": {"ARGUMENT": "VALUE"}}


@dataclass(frozen=True)
class ModelCalls:
    """How a model calls tools."""

    form: CallForm = HERMES
    is_native: bool = False  # the template describes tools itself
    special: Mapping[str, int] = field(default_factory=dict)  # special tokens in the form's texts, and their ids
    in_channels: bool = False  # answers are messages in channels (channels.py)

    @classmethod
    def find(cls, templates: Mapping[str, str], render: Callable[..., str], special: Mapping[str, int]) -> "ModelCalls":
        """By the templates' texts and trials. special: of the model's vocabulary."""
        in_channels = uses_channels(templates, special)
        found = find_form([*templates.values()], render)
        if found is not None and found.in_channels != in_channels:
            found = None
        form = found or HERMES
        used = "".join([form.call, form.block, form.opening, form.argument, form.quote, END_THINK, *TOKENS])
        special = {text: token for text, token in special.items() if text and text in used}
        return cls(form, found is not None, special, in_channels)

    @property
    def needs_special(self) -> bool:
        """Whether the parser of calls needs special tokens, which are otherwise dropped from an answer's text."""
        return bool(self.special.keys() - {END_THINK, *TOKENS})

    def for_template(self, messages: Sequence[Json], tools: Sequence[Json]) -> tuple[list[Json], Sequence[Json] | None]:
        """The conversation and the tools, as the template takes them. Raises ApiError."""
        check_arguments(messages)
        if not self.is_native:
            return with_instructions(messages, tools), None
        found = [*messages] if self.form.several else [part for message in _split(messages) for part in message]
        found = [_with_short_ids(message) for message in found] if self.form.short_ids else found
        if self.form.is_described or not tools:
            return found, tools or None
        return _told(found, tools, self.form), None


INSTRUCTED = ModelCalls()  # a template without tools


def check_arguments(messages: Sequence[Json]) -> None:
    """Refuse calls whose arguments, which are parsed for the template, have too many parts."""
    calls = (call for message in messages for call in message.get("tool_calls", ()))
    excess = json_excess(",".join(call["function"]["arguments"] for call in calls).encode(errors="replace"))
    if excess is not None:
        raise bad_request(f"the arguments of all tool calls have {excess}: send less", "messages")


# ---- for templates without tools ----


def with_instructions(messages: Sequence[Json], tools: Sequence[Json]) -> list[Json]:
    """The conversation for a template without tools: their description and calls become plain messages."""
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    return _told(plain, tools, HERMES)


def _told(messages: Sequence[Json], tools: Sequence[Json], form: CallForm) -> list[Json]:
    """With a description of the tools, and of the form of a call."""
    how = "like this" if form.argument else "as JSON between tags"
    example = form.write_calls([_EXAMPLE])
    instructions = INSTRUCTIONS.format(tools="\n".join(map(json.dumps, tools)), how=how, example=example)
    if messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{instructions}"}, *messages[1:]]
    return [{"role": "system", "content": instructions}, *messages]


def _plain(message: Json) -> Json:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if "tool_calls" not in message:
        return message
    calls = [
        HERMES.call.replace("$name", call["function"]["name"]).replace("$arguments", call["function"]["arguments"])
        for call in message["tool_calls"]
    ]
    return {"role": message["role"], "content": "\n".join(filter(None, [message["content"], *calls]))}


# ---- for templates with limits ----


def _split(messages: Sequence[Json]) -> list[list[Json]]:
    """For a template that takes one call in a message: a message for each, and after it its result."""
    found: list[list[Json]] = []
    for message in messages:
        calls = message.get("tool_calls") or ()
        if len(calls) > 1:
            first = {**message, "tool_calls": calls[:1]}
            found += [[first], *([{**message, "content": "", "tool_calls": [call]}] for call in calls[1:])]
            continue
        place = next((part for part in found if _is_result_of(part, message)), None)
        found.append([message]) if place is None else place.append(message)
    return found


def _is_result_of(part: Sequence[Json], message: Json) -> bool:
    calls = part[0].get("tool_calls") or ()
    return (
        message["role"] == "tool"
        and len(part) == 1
        and any(call["id"] == message.get("tool_call_id") for call in calls)
    )


def _with_short_ids(message: Json) -> Json:
    """For a template that refuses other ids than nine letters and digits."""
    if "tool_call_id" in message:
        return {**message, "tool_call_id": _short(message["tool_call_id"])}
    if "tool_calls" not in message:
        return message
    return {**message, "tool_calls": [{**call, "id": _short(call["id"])} for call in message["tool_calls"]]}


def _short(name: str) -> str:
    return name if _SHORT.fullmatch(name) else hashlib.sha256(name.encode(errors="replace")).hexdigest()[:9]


# ---- for templates that describe tools and leave out their calls ----


def calls_as_text(
    form: CallForm, messages: Sequence[Json], shield: Callable[[Any], Any]
) -> tuple[list[Json], dict[str, str]]:
    """Messages with marks in place of calls, and what stands for the marks in the prompt, where the form's own special
    tokens count. shield: of what users wrote."""
    mark, said = "<<surefoot calls>>", json.dumps(messages)
    while mark in said:
        mark = f"<{mark}>"
    found, texts = [], {}
    for number, message in enumerate(messages):
        if not message.get("tool_calls"):
            found.append(message)
            continue
        name = f"{mark}{number}."
        texts[name] = form.write_calls([_shielded(call, shield) for call in message["tool_calls"]])
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        found.append({**rest, "content": (message["content"] or "") + name})
    return found, texts


def _shielded(call: Json, shield: Callable[[Any], Any]) -> Json:
    function = call["function"]
    arguments = arguments_of(function["arguments"])  # written by a model: not always an object
    arguments = arguments if isinstance(arguments, dict) else {}
    return {"name": function["name"], "id": call["id"], "arguments": shield(arguments)}
