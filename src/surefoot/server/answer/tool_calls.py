"""Tool calls: how tools are described to a model, the grammar of its calls, and the parser that reads them.

A call has the form of Hermes and Qwen, a line of JSON between tags. If the model's template knows these tags, it
describes the tools itself; otherwise a system message does. Some models write calls as plain JSON all the same, in a
code block or as the whole answer. Where the model is free to call or not, that counts as a call too (call_heads.py).
A grammar holds every call to its tool's schema, so parsing cannot fail; only an answer that was cut off for length ends
inside a call.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.sampling.grammar import json_rule
from surefoot.server.answer.call_heads import BEGIN, FENCE, HeadFinder, Style, head_regex
from surefoot.server.answer.parsing import MessageDelta, TagFinder
from surefoot.server.schemas.tools import INPUT, NamedChoice, ToolChoice

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


# ---- prompts ----


def knows_calls(templates: Mapping[str, str]) -> bool:
    return any(BEGIN in source for source in templates.values())


def with_instructions(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation for a template without tools: their description and calls become plain messages."""
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    instructions = INSTRUCTIONS.format(tools="\n".join(json.dumps(tool) for tool in tools))
    if plain[0]["role"] == "system":
        return [{"role": "system", "content": f"{plain[0]['content']}\n\n{instructions}"}, *plain[1:]]
    return [{"role": "system", "content": instructions}, *plain]


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


# ---- grammar ----


# Line breaks and indentation, bounded: some models write white space for ever if they may.
LOOSE_STYLE = {"whitespace_flexible": True, "whitespace_pattern": r"(?:[ ]|\n[ \t]{0,64})?"}


@dataclass(frozen=True)
class CallableTool:
    """A tool as the grammar needs it."""

    name: str
    schema: dict[str, Any]  # of its arguments
    text: str | None = None  # of a custom tool: the grammar of its input, inside of a JSON string

    def arguments_rule(self) -> str:
        if self.text is None:
            return json_rule(self.schema)
        head = json.dumps(f'{{"{INPUT}": "')
        return f'{head} %lark {{\n{self.text}\n}} "\\"}}"'


def call_rules(
    tools: Sequence[CallableTool], choice: ToolChoice, parallel: bool, plain: Sequence[CallableTool] = ()
) -> str:
    """Lark rules, the first of which is `answer`. plain: tools whose calls may come without tags where the answer is
    free."""
    if isinstance(choice, NamedChoice):
        tools = [tool for tool in tools if tool.name == choice.function.name]
    bodies = " | ".join(f"tool_{number}" for number in range(len(tools)))
    rules = [f'body: "\\n" ({bodies}) "\\n{END}"']
    for number, tool in enumerate(tools):
        head = json.dumps(f'{{"name": "{tool.name}", "arguments": ')
        rules.append(f'tool_{number}: {head} arguments_{number} "}}"')
        rules.append(f"arguments_{number}: {tool.arguments_rule()}")
    return "\n".join([*_answer_rules(plain, choice, parallel), *rules])


def _answer_rules(plain: Sequence[CallableTool], choice: ToolChoice, parallel: bool) -> list[str]:
    if choice == "auto":
        # Lazy: the first head of a call ends the text, so that no call hides inside of text.
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


def _plain_rules(number: int, tool: CallableTool) -> list[str]:
    """A call without tags: in a code block anywhere, or at the beginning of the text; its braces may be doubled."""
    forms, rules = [], [f"loose_{number}: %json {json.dumps({**tool.schema, 'x-guidance': LOOSE_STYLE})}"]
    for braces in (1, 2):
        name, rest = f"{number}_{braces}", f"SPACE loose_{number}" + ' SPACE "}"' * braces
        forms += [f'fenced_{name} {rest} SPACE "{FENCE}"', f"bare_{name} {rest}"]
        rules += [
            f"fenced_{name}[lazy]: /(.|\\n)*{head_regex(Style.FENCED, tool.name, braces)}/",
            f"bare_{name}[lazy]: /((.|\\n)*<\\/think>)?[ \\n\\t]*{head_regex(Style.BARE, tool.name, braces)}/",
        ]
    return [f"plain_{number}: {' | '.join(forms)}", *rules]


# ---- parsing ----


class JsonScanner:
    """Finds the end of the last value of a JSON object: the brace that closes the object."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._is_escaped = False

    @property
    def is_outside(self) -> bool:
        """Whether the scanner is before the value, or after a value that is an object."""
        return not self._depth and not self._in_string

    def feed(self, text: str) -> int | None:
        """The index of that brace, if it is in this text."""
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
    """Splits one answer into content and calls.

    name: prefix of the calls' ids. plain: tools whose calls may come without tags.
    """

    def __init__(self, name: str, plain: Sequence[str] = ()) -> None:
        self._name = name
        self._read = self._content  # the method that reads the next text
        self._finder = HeadFinder(plain)
        self._end: TagFinder | None = None  # finds the end of the current call; None for a bare call
        self._head = ""
        self._scanner = JsonScanner()
        self._num_braces = 0  # that are still to close the current call
        self._begun = False  # the current arguments have begun
        self._space = ""
        self._strip = False
        self.num_calls = 0

    def feed(self, text: str) -> MessageDelta:
        delta = MessageDelta()
        while text:
            more, text = self._read(text)
            delta += more
        return delta

    def finish(self) -> MessageDelta:
        """An answer that was cut off may end inside a call."""
        return MessageDelta(self._stripped(self._finder.finish())) if self._read == self._content else MessageDelta()

    def _content(self, text: str) -> tuple[MessageDelta, str]:
        before, head, after = self._finder.feed(text)
        delta = MessageDelta(self._stripped(before))
        if head is None:
            return delta, ""
        self._end = {Style.TAGGED: TagFinder(END), Style.FENCED: TagFinder(FENCE), Style.BARE: None}[head.style]
        if head.style is Style.TAGGED:
            self._read, self._head = self._call_head, ""
            return delta, after
        return delta + self._begin(head.name, head.num_braces), after

    def _call_head(self, text: str) -> tuple[MessageDelta, str]:
        self._head += text
        match = _HEAD.match(self._head)
        if match is None:
            return MessageDelta(), ""
        return self._begin(match[1]), self._head[match.end() :]

    def _begin(self, name: str, num_braces: int = 1) -> MessageDelta:
        self._read, self._scanner, self._begun, self._space = self._arguments, JsonScanner(), False, ""
        self._num_braces = num_braces
        index, self.num_calls = self.num_calls, self.num_calls + 1
        function = {"name": name, "arguments": ""}
        call = {"index": index, "id": f"{self._name}{index}", "type": "function", "function": function}
        return MessageDelta(tool_calls=(call,))

    def _arguments(self, text: str) -> tuple[MessageDelta, str]:
        end = self._scanner.feed(text)
        text_so_far = self._space + text[:end] if self._begun else text[:end].lstrip()
        written = text_so_far.rstrip() if self._scanner.is_outside else text_so_far
        self._space = text_so_far[len(written) :]  # white space after the arguments is dropped
        self._begun = self._begun or bool(written)
        if end is not None:
            self._read, self._strip, self._num_braces = self._closing, True, self._num_braces - 1
        more = {"index": self.num_calls - 1, "function": {"arguments": written}}
        return MessageDelta(tool_calls=(more,) if written else ()), "" if end is None else text[end + 1 :]

    def _closing(self, text: str) -> tuple[MessageDelta, str]:
        """Further braces that close the call."""
        if self._num_braces and (text := text.lstrip()):
            self._num_braces, text = 0, text.removeprefix("}")
        if not self._num_braces:
            self._read = self._call_end if self._end is not None else self._content
        return MessageDelta(), text

    def _call_end(self, text: str) -> tuple[MessageDelta, str]:
        assert self._end is not None
        _, after = self._end.feed(text)
        if after is not None:
            self._read = self._content
        return MessageDelta(), after or ""

    def _stripped(self, text: str) -> str:
        """The text without the line breaks after a call, which are not content."""
        if self._strip:
            text = text.lstrip("\n")
            self._strip = not text
        return text


def whole_calls(deltas: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Complete calls, joined from their pieces."""
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        if "id" in delta:
            function = dict(delta["function"])
            calls.append({"id": delta["id"], "type": delta["type"], "function": function})
        else:
            calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return calls


def arguments_of(text: str) -> Any:
    """A call's arguments, parsed; empty for a call that was cut off for length."""
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return {}
