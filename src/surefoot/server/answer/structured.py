"""Structured output: the grammar of a response format or of tool calls, after the thought of a thinking model."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from surefoot.sampling import GrammarError, Grammars, GrammarTimeout
from surefoot.sampling.grammar import json_rule, lark_grammar, regex_rule
from surefoot.server.access.shares import Turns
from surefoot.server.answer.call_forms import CallForm
from surefoot.server.answer.call_grammar import CallableTool, Literals, call_rules, text_rules, unenforced
from surefoot.server.answer.call_values import TooComplex
from surefoot.server.answer.channels import channel_rules
from surefoot.server.answer.input_regex import input_pattern
from surefoot.server.answer.json_schemas import (
    NO_SCHEMA,
    PreparedSchema,
    SchemaError,
    arguments_schema,
    plain_complaint,
    prepare,
    unenforced_sentence,
)
from surefoot.server.answer.parsing import END_THINK
from surefoot.server.answer.tool_calls import INSTRUCTED, ModelCalls
from surefoot.server.errors import ApiError, bad_request
from surefoot.server.schemas.base import (
    GrammarFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    RegexFormat,
    ResponseFormat,
    TextFormat,
)
from surefoot.server.schemas.dialects import MOST_GRAMMAR_CHARACTERS
from surefoot.server.schemas.tools import (
    AllowedChoice,
    AnyChoice,
    AnyTool,
    CustomChoice,
    NamedChoice,
    Tool,
    ToolChoice,
    input_schema,
)

MOST_OWN_CHARACTERS = 4 * MOST_GRAMMAR_CHARACTERS  # of a grammar that is made here, of many tools
FREE_INPUT = "tools: the grammar of a custom tool is not enforced"
FREE_ARGUMENTS = "tools: schemas beyond the first 64 KiB, or too complex, are not enforced"
TOO_LONG = f"it comes to more than {MOST_GRAMMAR_CHARACTERS} characters: make it smaller"
# Lazy: the thought ends at the first closing tag.
THOUGHT = 'start: thought BREAKS answer\nthought[lazy]: ANYTHING "</think>"\nANYTHING: /(.|\\n)*/\nBREAKS: /\\n*/\n'
HIDDEN_THOUGHT = (
    "start: ANYTHING {end} BREAKS answer\nANYTHING: /(.|\\n)*/\nBREAKS: /\\n*/\n"  # the tag is a special token
)
PLAIN = "start: answer\n"


@dataclass(frozen=True)
class AskedAnswer:
    """What a request asks of its answer."""

    format: ResponseFormat | None
    tools: Sequence[Tool] = ()
    choice: ToolChoice = "none"
    parallel: bool = False  # several calls
    is_thinking: bool = False  # the prompt ends inside a thought
    calls: ModelCalls = INSTRUCTED
    any_of: bool = False  # several forms of a oneOf may fit

    @property
    def may_call(self) -> bool:
        return bool(self.tools) and self.choice != "none"


@dataclass(frozen=True)
class AnswerConstraint:
    """The constraint on an answer, and what the client should know about it."""

    grammar: str | None  # None: the answer is free
    notices: tuple[str, ...] = ()  # parts of the request that the grammar does not enforce
    calls: ModelCalls = INSTRUCTED
    tools: tuple[CallableTool, ...] = ()  # that may be called
    plain: tuple[str, ...] = ()  # tools whose calls may come without tags


def format_rules(wanted: ResponseFormat | None) -> str | None:
    """Lark rules, the first of which is `answer`; None if the answer is free."""
    if isinstance(wanted, JsonObjectFormat):
        return f"answer: {json_rule({'type': 'object'})}"
    if isinstance(wanted, JsonSchemaFormat):
        return f"answer: {json_rule(_whole_schema(wanted.json_schema.schema_ or {'type': 'object'}))}"
    if isinstance(wanted, RegexFormat):
        return f"answer: {regex_rule(wanted.regex)}"
    return None


def _whole_schema(schema: Mapping[str, Any]) -> Any:
    """The prepared schema. A response format is a promise, so a keyword that cannot be enforced is refused."""
    prepared = prepare(schema, closes=True)
    if prepared.unenforced:
        raise SchemaError(f"{unenforced_sentence(prepared.unenforced)}: leave it out")
    return prepared.schema


def check_tools(tools: Sequence[AnyTool], choice: AnyChoice | None) -> tuple[list[Tool], ToolChoice]:
    """The tools that may be called, all as functions, and how."""
    functions = [tool.as_function() for tool in tools]
    names = {tool.function.name for tool in functions}
    if len(names) < len(functions):
        raise bad_request("two tools have the same name: rename one", "tools")
    if isinstance(choice, CustomChoice):
        choice = NamedChoice(type="function", function=choice.custom)
    if isinstance(choice, NamedChoice) and choice.function.name not in names:
        raise bad_request(f"there is no tool {choice.function.name!r} in tools", "tool_choice")
    if not isinstance(choice, AllowedChoice):
        return functions, choice or "auto"
    allowed = {tool.name for tool in choice.allowed_tools.tools}
    functions = [tool for tool in functions if tool.function.name in allowed]
    if not functions and choice.allowed_tools.mode == "required":
        raise bad_request("none of the allowed tools is in tools: allow one that is", "tool_choice")
    return functions, choice.allowed_tools.mode if functions else "none"


async def constrain(grammars: Grammars, turns: Turns, asked: AskedAnswer) -> AnswerConstraint:
    """The constraint for a request, compiled once to prove it usable. Raises ApiError if it is not.

    turns: one grammar is compiled at a time, on another thread.
    """
    if not asked.tools and (asked.format is None or isinstance(asked.format, TextFormat)):
        return AnswerConstraint(None, calls=asked.calls)
    try:
        async with turns.turn():
            return await asyncio.to_thread(_compiled, grammars, asked)
    except GrammarTimeout as error:
        raise ApiError(503, str(error), code="grammar_timeout", headers={"Retry-After": "60"}) from error
    except (GrammarError, SchemaError) as error:
        if not asked.tools or asked.any_of or "oneOf" not in str(error):
            raise _refusal(error, asked) from error
    return await constrain(grammars, turns, replace(asked, any_of=True))


def _refusal(error: Exception, asked: AskedAnswer) -> ApiError:
    """The error may quote a grammar that the client sent, not one that was generated here."""
    param = "tools" if asked.may_call else "response_format"
    is_own = not asked.may_call and isinstance(asked.format, GrammarFormat)
    return bad_request(f"{param} cannot be used: {error if is_own else plain_complaint(str(error))}", param)


def _compiled(grammars: Grammars, asked: AskedAnswer) -> AnswerConstraint:
    """The constraint, if it can be used. If a custom tool's grammar cannot be, its input is free."""
    try:
        constraint = make_grammar(asked)
        if constraint.grammar is not None:
            if len(constraint.grammar) > MOST_OWN_CHARACTERS:
                raise GrammarError(TOO_LONG)
            grammars.compile(constraint.grammar)
        return constraint
    except GrammarTimeout:
        raise
    except GrammarError:
        if all(tool.grammar is None for tool in asked.tools):
            raise
    free = [Tool(type="function", function=tool.function) for tool in asked.tools]
    constraint = _compiled(grammars, replace(asked, tools=free))
    return replace(constraint, notices=(*constraint.notices, FREE_INPUT))


def make_grammar(asked: AskedAnswer) -> AnswerConstraint:
    calls = asked.calls
    if asked.may_call:
        return _constrain_calls(asked)
    if isinstance(asked.format, GrammarFormat):
        return AnswerConstraint(lark_grammar(asked.format.grammar), calls=calls)
    rules = format_rules(asked.format)
    if asked.tools and rules is None:
        rules = text_rules(calls.form, calls.special)
    grammar = None if rules is None else lark_grammar(_beginning(asked.is_thinking, calls, is_said=True) + rules)
    return AnswerConstraint(grammar, calls=calls)


def _beginning(is_thinking: bool, calls: ModelCalls, is_said: bool = False) -> str:
    """is_said: the answer is text alone, not calls."""
    literal = Literals(calls.special)
    if calls.in_channels:
        return channel_rules(literal, is_said or not calls.form.in_channels)
    if is_thinking and END_THINK in calls.special:
        return HIDDEN_THOUGHT.format(end=literal(END_THINK))
    return THOUGHT if is_thinking else PLAIN


def _constrain_calls(asked: AskedAnswer) -> AnswerConstraint:
    """Calls without tags repeat each schema in the grammar. Where that makes it too long, only tagged calls are
    allowed."""
    calls = asked.calls
    try:
        callables, notices = _callables(asked)
        for held, plain, most in _attempts(calls.form, callables, asked.choice):
            with suppress(TooComplex):
                rules = call_rules(calls.form, held, asked.choice, asked.parallel, plain, calls.special)
                grammar = lark_grammar(_beginning(asked.is_thinking, calls) + rules)
                if len(grammar) <= most:
                    break
    except (AttributeError, KeyError, TypeError) as error:  # a keyword with a value of another type than it has
        raise SchemaError(NO_SCHEMA) from error
    notices = notices if held is callables else (*notices, FREE_ARGUMENTS)
    bare = plain if calls.form.opening else held
    return AnswerConstraint(grammar, notices, calls, tuple(held), tuple(item.name for item in bare))


Tools = Sequence[CallableTool]


def _attempts(form: CallForm, tools: Tools, choice: ToolChoice) -> list[tuple[Tools, Tools, int]]:
    """Tools, those that may be called in plain JSON, and how long the grammar may be: the first that fits is used."""
    free = [*map(_free, tools)]
    if not form.opening:
        is_plain = choice == "auto"
        return [(held, held if is_plain else [], MOST_OWN_CHARACTERS) for held in (tools, free)]
    tagged: list[tuple[Tools, Tools, int]] = [(held, [], MOST_OWN_CHARACTERS) for held in (tools, free)]
    return [(tools, tools, MOST_GRAMMAR_CHARACTERS), *tagged] if choice == "auto" and form.plain else tagged


def _free(tool: CallableTool) -> CallableTool:
    """Where a grammar repeats definitions so often that it is too long. Always accepted."""
    return replace(tool, schema={"type": "object"})


def _callables(asked: AskedAnswer) -> tuple[list[CallableTool], tuple[str, ...]]:
    """The tools as the grammar needs them, and what it does not enforce. Where all schemas together are longer than a
    grammar may be, the arguments of the last tools are only held to be an object."""
    callables: list[CallableTool] = []
    words: dict[str, None] = {}
    notices: dict[str, None] = {}
    num_sent = num_held = 0  # characters of schemas
    for tool in asked.tools:
        num_sent += len(json.dumps(tool.function.parameters))
        parameters, prepared = tool.function.parameters, PreparedSchema({"type": "object"}, ())
        if tool.grammar is not None:
            try:
                parameters = input_schema(pattern=input_pattern(tool.grammar))
            except ValueError:
                notices |= {FREE_INPUT: None}
        if num_sent <= MOST_OWN_CHARACTERS:  # to prepare them takes a while
            prepared = prepare(arguments_schema(parameters), closes=True, any_of=asked.any_of)
        num_held += len(json.dumps(prepared.schema))
        if num_sent > MOST_OWN_CHARACTERS or num_held > MOST_GRAMMAR_CHARACTERS:
            callables.append(CallableTool(tool.function.name, {"type": "object"}))
            notices |= {FREE_ARGUMENTS: None}
            continue
        with suppress(TooComplex):  # which leaves the arguments free
            words |= dict.fromkeys((*prepared.unenforced, *unenforced(asked.calls.form, prepared.schema)))
        callables.append(CallableTool(tool.function.name, prepared.schema))
    if words:
        notices = {f"tools: {unenforced_sentence([*words])}": None, **notices}
    return callables, tuple(notices)
