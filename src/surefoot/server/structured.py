"""What an answer is held to: a format or calls of tools, after thinking where the model thinks."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.sampling import GrammarError, Grammars
from surefoot.sampling.grammar import json_rule, lark_grammar, regex_rule
from surefoot.server.errors import ApiError, bad_request
from surefoot.server.json_schemas import SchemaError, arguments_schema, plain_complaint, prepare, unenforced_sentence
from surefoot.server.schemas.base import (
    GrammarFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    RegexFormat,
    ResponseFormat,
    TextFormat,
)
from surefoot.server.schemas.tools import NamedChoice, Tool, ToolChoice
from surefoot.server.shares import Turns
from surefoot.server.tool_calls import Callable, call_rules

MOST_CHARACTERS = 64 << 10
# A thought ends where its tag comes first.
THOUGHT = 'start: thought BREAKS answer\nthought[lazy]: ANYTHING "</think>"\nANYTHING: /(.|\\n)*/\nBREAKS: /\\n*/\n'
PLAIN = "start: answer\n"


@dataclass(frozen=True)
class Held:
    """What an answer is held to: None if anything will do. notices: what of the client's wishes it is not held to.
    plain: tools whose calls may come without tags."""

    grammar: str | None
    notices: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()


def format_rules(wanted: ResponseFormat | None) -> str | None:
    """Lark rules whose first is `answer`; None if anything will do."""
    if isinstance(wanted, JsonObjectFormat):
        return f"answer: {json_rule({'type': 'object'})}"
    if isinstance(wanted, JsonSchemaFormat):
        return f"answer: {json_rule(_whole_schema(wanted.json_schema.schema_ or {'type': 'object'}))}"
    if isinstance(wanted, RegexFormat):
        return f"answer: {regex_rule(wanted.regex)}"
    return None


def _whole_schema(schema: Mapping[str, Any]) -> Any:
    """A format is a promise: what cannot be kept is refused."""
    prepared = prepare(schema, closes=True)
    if prepared.unenforced:
        raise SchemaError(f"{unenforced_sentence(prepared.unenforced)}: leave it out")
    return prepared.schema


def check_tools(tools: Sequence[Tool], choice: ToolChoice) -> None:
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise bad_request("two tools have one name: rename one", "tools")
    if isinstance(choice, NamedChoice) and choice.function.name not in names:
        raise bad_request(f"there is no tool {choice.function.name!r} in tools", "tool_choice")


async def held_to(
    grammars: Grammars,
    turns: Turns,
    wanted: ResponseFormat | None,
    tools: Sequence[Tool] = (),
    choice: ToolChoice = "none",
    parallel: bool = False,
    is_thinking: bool = False,
) -> Held:
    """Known to be usable. is_thinking: the prompt ends inside a thought. turns: one is tried at a time, on another
    thread."""
    if choice == "none":
        tools = ()
    if not tools and (wanted is None or isinstance(wanted, TextFormat)):
        return Held(None)
    for any_of in (False, True):
        try:
            async with turns.turn():
                return await asyncio.to_thread(
                    _compiled, grammars, wanted, tools, choice, parallel, is_thinking, any_of
                )
        except (GrammarError, SchemaError) as error:
            if tools and not any_of and "oneOf" in str(error):
                continue
            raise _refusal(error, wanted, tools) from error
    raise AssertionError


def _refusal(error: Exception, wanted: ResponseFormat | None, tools: Sequence[Tool]) -> ApiError:
    """A grammar of the client's own may be quoted, not one that was made here."""
    is_own = not tools and isinstance(wanted, GrammarFormat)
    param = "tools" if tools else "response_format"
    return bad_request(f"{param} cannot be used: {error if is_own else plain_complaint(str(error))}", param)


def _compiled(
    grammars: Grammars,
    wanted: ResponseFormat | None,
    tools: Sequence[Tool],
    choice: ToolChoice,
    parallel: bool,
    is_thinking: bool,
    any_of: bool,
) -> Held:
    held = make_grammar(wanted, tools, choice, parallel, is_thinking, any_of)
    if held.grammar is not None:
        if len(held.grammar) > MOST_CHARACTERS:
            raise GrammarError(f"it comes to more than {MOST_CHARACTERS} characters: make it smaller")
        grammars.compile(held.grammar)
    return held


def make_grammar(
    wanted: ResponseFormat | None,
    tools: Sequence[Tool],
    choice: ToolChoice,
    parallel: bool,
    is_thinking: bool,
    any_of: bool = False,
) -> Held:
    if tools:
        return _held_calls(tools, choice, parallel, is_thinking, any_of)
    if isinstance(wanted, GrammarFormat):
        return Held(lark_grammar(wanted.grammar))
    rules = format_rules(wanted)
    return Held(None if rules is None else lark_grammar(_beginning(is_thinking) + rules))


def _beginning(is_thinking: bool) -> str:
    return THOUGHT if is_thinking else PLAIN


def _held_calls(tools: Sequence[Tool], choice: ToolChoice, parallel: bool, is_thinking: bool, any_of: bool) -> Held:
    """Calls without tags take each schema once more: not where that would be too much."""
    prepared = [prepare(arguments_schema(tool.function.parameters), closes=True, any_of=any_of) for tool in tools]
    callables = [Callable(tool.function.name, one.schema) for tool, one in zip(tools, prepared, strict=True)]
    words = list(dict.fromkeys(word for one in prepared for word in one.unenforced))
    notices = (f"tools: {unenforced_sentence(words)}",) if words else ()
    for plain in (tuple(one.name for one in callables) if choice == "auto" else (), ()):
        grammar = lark_grammar(_beginning(is_thinking) + call_rules(callables, choice, parallel, bool(plain)))
        if not plain or len(grammar) <= MOST_CHARACTERS:
            break
    return Held(grammar, notices, plain)
