"""Calls of tools: how a model is told of them, how it writes them, and how they are read again.

A call is written as Hermes and Qwen write it, a line of JSON between tags. A model whose template knows these tags is
told by its template, another by a system message. Some models write calls as plain JSON all the same, in a code block
or as all that they say: where a model is free to call or to talk, that counts too (call_heads.py). A grammar holds
every call to its tool's schema, so that reading one cannot fail; only an answer that was cut off for length ends inside
one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.sampling.grammar import json_rule
from surefoot.server.call_heads import BEGIN, FENCE, HeadFinder, Style, head_regex
from surefoot.server.parts import Delta, TagFinder
from surefoot.server.schemas.tools import NamedChoice, ToolChoice

END = "</tool_call>"
_HEAD = re.compile(r'\s*\{"name": "([^"]+)", "arguments": ')

INSTRUCTIONS = """# Tools

You may call one or more functions to help with the user's request. These are the functions:
<tools>
{tools}
</tools>

For each call, write the function's name and arguments as JSON between tags:
<tool_call>
{{"name": "FUNCTION", "arguments": {{"ARGUMENT": "VALUE"}}}}
</tool_call>"""


# ---- telling the model ----


def knows_calls(templates: Mapping[str, str]) -> bool:
    return any(BEGIN in source for source in templates.values())


def with_instructions(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation for a template that knows nothing of tools."""
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    told = INSTRUCTIONS.format(tools="\n".join(json.dumps(tool) for tool in tools))
    if plain[0]["role"] == "system":
        return [{"role": "system", "content": f"{plain[0]['content']}\n\n{told}"}, *plain[1:]]
    return [{"role": "system", "content": told}, *plain]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if "tool_calls" not in message:
        return message
    calls = [
        f'{BEGIN}\n{{"name": "{call["function"]["name"]}", "arguments": {call["function"]["arguments"]}}}\n{END}'
        for call in message["tool_calls"]
    ]
    return {"role": message["role"], "content": "\n".join(filter(None, [message["content"], *calls]))}


# ---- holding it to the schemas ----


# Line breaks and indentation, within bounds: a model that may write white space for ever, sometimes does.
LOOSE_STYLE = {"whitespace_flexible": True, "whitespace_pattern": r"(?:[ ]|\n[ \t]{0,64})?"}


@dataclass(frozen=True)
class Callable:
    """A tool as a grammar needs it. schema: of its arguments."""

    name: str
    schema: dict[str, Any]


def call_rules(tools: Sequence[Callable], choice: ToolChoice, parallel: bool, has_plain: bool = False) -> str:
    """Lark rules; `answer` is the first. has_plain: where the model may talk, calls may come without tags."""
    if isinstance(choice, NamedChoice):
        tools = [tool for tool in tools if tool.name == choice.function.name]
    bodies = " | ".join(f"tool_{number}" for number in range(len(tools)))
    rules = [f'body: "\\n" ({bodies}) "\\n{END}"']
    for number, tool in enumerate(tools):
        head = json.dumps(f'{{"name": "{tool.name}", "arguments": ')
        rules.append(f'tool_{number}: {head} arguments_{number} "}}"')
        rules.append(f"arguments_{number}: {json_rule(tool.schema)}")
    return "\n".join([*_answer_rules(tools if has_plain else (), choice, parallel), *rules])


def _answer_rules(plain: Sequence[Callable], choice: ToolChoice, parallel: bool) -> list[str]:
    if choice == "auto":
        # Lazy: a call's head ends the text wherever it comes first, so that no call hides in what is said.
        return [
            "answer: call* tail" if parallel else "answer: call | tail",
            " | ".join(["call: head body", *(f"plain_{number}" for number in range(len(plain)))]),
            f'head[lazy]: TEXT "{BEGIN}"',
            "tail: TEXT",
            r"TEXT: /(.|\n)*/",
            r"SPACE: /[ \n\t]{0,64}/",
            *(rule for number, tool in enumerate(plain) for rule in _plain_rules(number, tool)),
        ]
    several = parallel and choice == "required"
    return ['answer: call ("\\n" call)*' if several else "answer: call", f'call: "{BEGIN}" body']


def _plain_rules(number: int, tool: Callable) -> list[str]:
    """A call without tags: in a code block anywhere, or at the beginning of what is said."""
    rest = f'SPACE loose_{number} SPACE "}}"'
    return [
        f'plain_{number}: fenced_{number} {rest} SPACE "{FENCE}" | bare_{number} {rest}',
        f"fenced_{number}[lazy]: /(.|\\n)*{head_regex(Style.FENCED, tool.name)}/",
        f"bare_{number}[lazy]: /((.|\\n)*<\\/think>)?[ \\n\\t]*{head_regex(Style.BARE, tool.name)}/",
        f"loose_{number}: %json {json.dumps({**tool.schema, 'x-guidance': LOOSE_STYLE})}",
    ]


# ---- reading its calls ----


class JsonScanner:
    """Finds where a JSON value inside an object ends: at the brace that closes the object."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._is_escaped = False

    @property
    def is_outside(self) -> bool:
        """Before the value, or after one that is an object."""
        return not self._depth and not self._in_string

    def feed(self, text: str) -> int | None:
        """The place of that brace, if it is in this text."""
        for place, character in enumerate(text):
            if self._in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif character == "\\":
                    self._is_escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                if not self._depth:
                    return place
                self._depth -= 1
        return None


class CallParser:
    """Content and calls of one answer. name: what its calls' ids begin with. plain: tools whose calls may come without
    tags."""

    def __init__(self, name: str, plain: Sequence[str] = ()) -> None:
        self._name = name
        self._read = self._content  # what the next text belongs to
        self._finder = HeadFinder(plain)
        self._end: TagFinder | None = None  # of what follows the call at hand
        self._head = ""
        self._scanner = JsonScanner()
        self._begun = False  # the arguments at hand
        self._space = ""
        self._strip = False
        self.num_calls = 0

    def feed(self, text: str) -> Delta:
        delta = Delta()
        while text:
            more, text = self._read(text)
            delta += more
        return delta

    def finish(self) -> Delta:
        """An answer that was cut off may end inside a call."""
        return Delta(self._stripped(self._finder.finish())) if self._read == self._content else Delta()

    def _content(self, text: str) -> tuple[Delta, str]:
        before, found, after = self._finder.feed(text)
        delta = Delta(self._stripped(before))
        if found is None:
            return delta, ""
        self._end = {Style.TAGGED: TagFinder(END), Style.FENCED: TagFinder(FENCE), Style.BARE: None}[found.style]
        if found.style is Style.TAGGED:
            self._read, self._head = self._call_head, ""
            return delta, after
        return delta + self._begin(found.name), after

    def _call_head(self, text: str) -> tuple[Delta, str]:
        self._head += text
        found = _HEAD.match(self._head)
        if found is None:
            return Delta(), ""
        return self._begin(found[1]), self._head[found.end() :]

    def _begin(self, name: str) -> Delta:
        self._read, self._scanner, self._begun, self._space = self._arguments, JsonScanner(), False, ""
        index, self.num_calls = self.num_calls, self.num_calls + 1
        function = {"name": name, "arguments": ""}
        call = {"index": index, "id": f"{self._name}{index}", "type": "function", "function": function}
        return Delta(tool_calls=(call,))

    def _arguments(self, text: str) -> tuple[Delta, str]:
        end = self._scanner.feed(text)
        text_so_far = self._space + text[:end] if self._begun else text[:end].lstrip()
        written = text_so_far.rstrip() if self._scanner.is_outside else text_so_far
        self._space = text_so_far[len(written) :]  # behind the arguments it is nobody's
        self._begun = self._begun or bool(written)
        if end is not None:
            self._read, self._strip = self._call_end if self._end is not None else self._content, True
        more = {"index": self.num_calls - 1, "function": {"arguments": written}}
        return Delta(tool_calls=(more,) if written else ()), "" if end is None else text[end + 1 :]

    def _call_end(self, text: str) -> tuple[Delta, str]:
        assert self._end is not None
        _, after = self._end.feed(text)
        if after is not None:
            self._read = self._content
        return Delta(), after or ""

    def _stripped(self, text: str) -> str:
        """Line breaks after a call are not content."""
        if self._strip:
            text = text.lstrip("\n")
            self._strip = not text
        return text


def whole_calls(deltas: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls put together from their pieces."""
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        if "id" in delta:
            function = dict(delta["function"])
            calls.append({"id": delta["id"], "type": "function", "function": function})
        else:
            calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return calls
