# ruff: noqa: RUF001 - the bar in DeepSeek's tags is no ASCII
"""The forms in which models write tool calls, as data: one row for each.

From a row come the grammar that holds a model to the form (call_grammar.py), the parser that reads it back
(tool_calls.py), and the trial by which the form of a chat template is found. Design: docs/design/agents.md.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from surefoot.server.answer.call_values import as_json

PLACES = re.compile(r"\$(name|id|arguments|key|is_string|value)")


@dataclass(frozen=True)
class CallForm:
    """How calls are written. In the texts, $name, $id, $arguments, $calls, $key, $is_string and $value stand
    for what differs."""

    name: str
    call: str
    opening: str = ""  # what a call, or a block of calls, begins with; empty: only an answer's beginning is a call
    marks: tuple[str, ...] = ()  # one of them is in the source of a template that uses the form
    argument: str = ""  # one argument; empty: all arguments are one object in JSON
    between_arguments: str = ""
    quote: str = ""  # before and after a string; empty: the text around the value ends it
    words: tuple[str, str, str] = ("true", "false", "null")  # of arguments: what is inside of them is JSON
    nested: bool = False  # what is inside of arguments has the form's quotes too, and names in alphabetical order
    block: str = "$calls"
    between: str = "\n"  # calls
    several: bool = True  # calls in one answer
    plain: bool = False  # calls in plain JSON count too: in a code block, or as the whole answer
    short_ids: bool = False  # nine letters and digits, or the template refuses the conversation
    in_channels: bool = False  # text and calls are messages of their own (channels.py)
    is_written: bool = True  # the template writes the calls of a conversation
    is_described: bool = True  # the template describes the tools

    @cached_property
    def around_calls(self) -> tuple[str, str]:
        before, _, after = self.block.partition("$calls")
        return before, after

    @cached_property
    def around_value(self) -> tuple[str, str]:
        before, _, after = self.argument.partition("$value")
        return before, after

    @cached_property
    def tag(self) -> str:
        """What ends a string without quotes, which therefore cannot be in it."""
        return "" if self.quote else self.around_value[1].strip("\n")

    def write_calls(self, calls: Sequence[Mapping[str, Any]]) -> str:
        """As the model would. calls: with name, id, and arguments as a value."""
        before, after = self.around_calls
        return before + self.between.join(map(self.write_call, calls)) + after

    def write_call(self, call: Mapping[str, Any]) -> str:
        arguments = self.write_arguments(call["arguments"])
        return _filled(self.call, name=call["name"], id=call["id"], arguments=arguments)

    def write_arguments(self, arguments: Mapping[str, Any]) -> str:
        if not self.argument:
            return as_json(arguments)
        pairs = sorted(arguments.items(), key=sort_key) if self.nested else arguments.items()
        return self.between_arguments.join(
            _filled(self.argument, key=key, is_string=as_json(isinstance(value, str)), value=self.write_value(value))
            for key, value in pairs
        )

    def write_value(self, value: Any) -> str:
        if isinstance(value, str):
            is_hard = self.quote == "'" and ("'" in value or "\\" in value)
            return as_json(value) if is_hard else self.quote + value + self.quote
        if value is True or value is False or value is None:
            return self.words[(True, False, None).index(value)]
        if self.nested and isinstance(value, Mapping):
            return f"{{{self.write_arguments(value)}}}"
        if self.nested and isinstance(value, Sequence):
            return f"[{','.join(map(self.write_value, value))}]"
        return as_json(value)


def _filled(text: str, **values: str) -> str:
    return PLACES.sub(lambda place: values[place[1]], text)


def split(text: str) -> tuple[list[str], list[str]]:
    """The literal texts, and the names of the places between them."""
    parts = PLACES.split(text)
    return parts[::2], parts[1::2]


def sort_key(pair: tuple[str, Any]) -> str:
    """As Jinja's dictsort."""
    return pair[0].lower()


# ---- the table ----

PYTHON = ("True", "False", "None")
HERMES = CallForm(
    "hermes", '<tool_call>\n{"name": "$name", "arguments": $arguments}\n</tool_call>', "<tool_call>",
    marks=("<tool_call>",), plain=True,
)  # fmt: skip
_NAMED = '{"name": "$name", "arguments": $arguments}'
_QWEN = CallForm(
    "qwen xml", "<tool_call>\n<function=$name>\n$arguments</function>\n</tool_call>", "<tool_call>",
    marks=("<function=",), argument="<parameter=$key>\n$value\n</parameter>\n", words=PYTHON,
)  # fmt: skip
_GLM = CallForm(
    "glm", "<tool_call>$name\n$arguments</tool_call>", "<tool_call>", marks=("<arg_key>",),
    argument="<arg_key>$key</arg_key>\n<arg_value>$value</arg_value>\n",
)  # fmt: skip
_DEEPSEEK = CallForm(
    "deepseek", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n```json\n$arguments\n```<｜tool▁call▁end｜>",
    "<｜tool▁calls▁begin｜>", marks=("<｜tool▁calls▁begin｜>",),
    block="<｜tool▁calls▁begin｜>$calls<｜tool▁calls▁end｜>",
)  # fmt: skip
_DSML = CallForm(
    "deepseek xml", '<｜DSML｜invoke name="$name">\n$arguments</｜DSML｜invoke>\n', "<｜DSML｜function_calls>",
    marks=("｜DSML｜",),
    argument='<｜DSML｜parameter name="$key" string="$is_string">$value</｜DSML｜parameter>\n',
    block="<｜DSML｜function_calls>\n$calls</｜DSML｜function_calls>", between="",
)  # fmt: skip
_MISTRAL = CallForm("mistral", "[TOOL_CALLS]$name[ARGS]$arguments", "[TOOL_CALLS]", marks=("[ARGS]",), between="")
_LFM = CallForm(
    "lfm", "$name($arguments)", "<|tool_call_start|>",
    marks=("<|tool_call_start|>", "<|tool_list_start|>", "List of tools: ["),
    argument="$key=$value", between_arguments=", ", quote="'", words=PYTHON,
    block="<|tool_call_start|>[$calls]<|tool_call_end|>", between=", ",
)  # fmt: skip
_HARMONY = CallForm(
    "harmony", "to=functions.$name<|channel|>commentary json<|message|>$arguments", "to=functions.",
    marks=("<|channel|>commentary",), several=False, in_channels=True,
)  # fmt: skip


def _in_list(name: str, opening: str, end: str) -> CallForm:
    return CallForm(name, _NAMED, opening, (opening,), block=f"{opening}[$calls]{end}", between=", ")


# Of several that fit, the first is taken: what is special comes before what is common.
FORMS = (
    _QWEN,
    replace(
        _QWEN, name="seed", opening="<seed:tool_call>", marks=("<seed:tool_call>",),
        call="<seed:tool_call>\n<function=$name>\n$arguments</function>\n</seed:tool_call>",
        argument="<parameter=$key>$value</parameter>\n",
    ),
    _GLM,
    replace(
        _GLM, name="glm 4.7", call="<tool_call>$name$arguments</tool_call>", between="",
        argument="<arg_key>$key</arg_key><arg_value>$value</arg_value>",
    ),
    replace(
        _GLM, name="ling", call="<tool_call>$name\n$arguments\n</tool_call>",
        argument="<arg_key>$key</arg_key>\n<arg_value>$value</arg_value>",
    ),
    _MISTRAL,
    replace(_MISTRAL, name="mistral with ids", call="[TOOL_CALLS]$name[CALL_ID]$id[ARGS]$arguments", short_ids=True),
    replace(
        _MISTRAL, name="mistral list", call=_NAMED, marks=("[TOOL_CALLS]",), block="[TOOL_CALLS][$calls]", between=", ",
        short_ids=True,
    ),
    _DEEPSEEK,
    replace(
        _DEEPSEEK, name="deepseek 3.1", between="",
        call="<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
    ),
    _DSML,
    replace(
        _DSML, name="deepseek 4", opening="<｜DSML｜tool_calls>",
        block="<｜DSML｜tool_calls>\n$calls</｜DSML｜tool_calls>",
    ),
    CallForm(
        "gemma", "<|tool_call>call:$name{$arguments}<tool_call|>", "<|tool_call>", marks=("<|tool_call>",),
        argument="$key:$value", between_arguments=",", quote='<|"|>', nested=True, between="",
        words=("true", "false", "None"),
    ),
    _LFM,
    _in_list("granite", "<|tool_call|>", ""),
    _HARMONY,
    replace(
        _HARMONY, name="harmony with types",
        call="to=functions.$name<|channel|>commentary <|constrain|> json<|message|>$arguments",
    ),
    _in_list("nemotron", "<TOOLCALL>", "</TOOLCALL>"),
    _in_list("apriel", "<tool_calls>", "</tool_calls>"),
    replace(
        _in_list("minimax 1", "<tool_calls>", ""), block="<tool_calls>\n$calls\n</tool_calls>", between="\n",
    ),
    CallForm(
        "minimax 2", '<invoke name="$name">\n$arguments</invoke>\n', "<minimax:tool_call>",
        marks=("<minimax:tool_call>",), argument='<parameter name="$key">$value</parameter>\n',
        block="<minimax:tool_call>\n$calls</minimax:tool_call>", between="",
    ),
    HERMES,
    CallForm(
        "llama", '{"name": "$name", "parameters": $arguments}', marks=('"parameters": ',), several=False, plain=True,
    ),
)  # fmt: skip


# ---- recognition ----

_CALLS: tuple[dict[str, Any], ...] = (
    {"name": "qx_one", "id": "qxcallone", "arguments": {"word": "Qx one", "count": 3, "flag": True}},
    {"name": "qx_two", "id": "qxcalltwo", "arguments": {"word": "Qx two"}},
)
_TYPES = {"word": "string", "count": "integer", "flag": "boolean"}
_ASKED = {"role": "user", "content": "Qx asks"}


def trial_tools() -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {key: {"type": kind, "description": key} for key, kind in _TYPES.items()}}
    return [
        {"type": "function", "function": {"name": call["name"], "description": "Qx", "parameters": schema}}
        for call in _CALLS
    ]


def trial_messages(num_calls: int) -> list[dict[str, Any]]:
    """A conversation with calls, and an answer after their results: some templates leave out what comes before it."""
    calls = [
        {
            "id": call["id"], "type": "function",
            "function": {"name": call["name"], "arguments": as_json(call["arguments"])},
        }
        for call in _CALLS[:num_calls]
    ]  # fmt: skip
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "Qx result"} for call in _CALLS[:num_calls]]
    return [_ASKED, {"role": "assistant", "content": "", "tool_calls": calls}, *results]


def find_form(sources: Sequence[str], render: Callable[..., str]) -> CallForm | None:
    """The form that a template's text and a trial with it show; None if it has none that is known here.

    render: of messages, with tools=; raises ValueError where the template refuses.
    """
    fitting = [form for form in FORMS if any(mark in source for mark in form.marks for source in sources)]
    one, two = (_tried(render, num_calls) if fitting else None for num_calls in (1, 2))
    is_described = bool(fitting) and _describes(render)
    if one is None or _CALLS[0]["name"] not in one:  # calls are left out, or the conversation is refused
        form = next((form for form in fitting if form.opening), None)
        return replace(form, is_written=False) if form is not None and is_described else None
    form = next((form for form in fitting if _beginning(form) in one), None)
    if form is None:
        return None
    several = replace(form, several=False) if two is None else replace(form, between=_between(form, two))
    return replace(several, is_described=is_described)


def _tried(render: Callable[..., str], num_calls: int) -> str | None:
    """The trial as the template writes it, without the description of the tools."""
    try:
        text = render(trial_messages(num_calls), tools=trial_tools())
    except ValueError:
        return None
    return text[text.rfind(_ASKED["content"]) :]


def _describes(render: Callable[..., str]) -> bool:
    try:
        return str(_CALLS[0]["name"]) in render([_ASKED], tools=trial_tools())
    except ValueError:
        return False


def _beginning(form: CallForm) -> str:
    """The first call, up to what comes after its arguments: that may hold an id that no model writes."""
    return form.write_calls(_CALLS[:1]).removesuffix(form.call.partition("$arguments")[2] + form.around_calls[1])


def _between(form: CallForm, text: str) -> str:
    """What the template writes between two calls."""
    end = form.write_call(_CALLS[0])
    head, place = form.write_call(_CALLS[1]), text.find(end) + len(end)
    following = text.find(head, place)
    return text[place:following] if place >= len(end) <= following and following >= 0 else form.between
