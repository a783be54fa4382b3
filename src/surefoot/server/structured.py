"""What an answer is held to: a format or calls of tools, after thinking where the model thinks."""

import asyncio
from collections.abc import Sequence

from surefoot.sampling import GrammarError, Grammars
from surefoot.sampling.grammar import json_rule, lark_grammar, regex_rule
from surefoot.server.errors import bad_request
from surefoot.server.schemas.base import (
    GrammarFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    RegexFormat,
    ResponseFormat,
)
from surefoot.server.schemas.tools import NamedChoice, Tool, ToolChoice
from surefoot.server.shares import Turns
from surefoot.server.tool_calls import call_rules

MOST_CHARACTERS = 64 << 10
# A thought ends where its tag comes first.
THOUGHT = 'start: thought BREAKS answer\nthought[lazy]: ANYTHING "</think>"\nANYTHING: /(.|\\n)*/\nBREAKS: /\\n*/\n'
PLAIN = "start: answer\n"


def format_rules(wanted: ResponseFormat | None) -> str | None:
    """Lark rules whose first is `answer`; None if anything will do."""
    if isinstance(wanted, JsonObjectFormat):
        return f"answer: {json_rule({'type': 'object'})}"
    if isinstance(wanted, JsonSchemaFormat):
        return f"answer: {json_rule(wanted.json_schema.schema_ or {'type': 'object'})}"
    if isinstance(wanted, RegexFormat):
        return f"answer: {regex_rule(wanted.regex)}"
    return None


def check_tools(tools: Sequence[Tool], choice: ToolChoice) -> None:
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise bad_request("two tools have one name: rename one", "tools")
    if isinstance(choice, NamedChoice) and choice.function.name not in names:
        raise bad_request(f"there is no tool {choice.function.name!r} in tools", "tool_choice")


def make_grammar(
    wanted: ResponseFormat | None, tools: Sequence[Tool], choice: ToolChoice, parallel: bool, is_thinking: bool
) -> str | None:
    """is_thinking: the prompt ends inside a thought."""
    if tools and choice != "none":
        rules: str | None = call_rules(tools, choice, parallel)
    elif isinstance(wanted, GrammarFormat):
        return lark_grammar(wanted.grammar)
    else:
        rules = format_rules(wanted)
    return None if rules is None else lark_grammar((THOUGHT if is_thinking else PLAIN) + rules)


async def compiled(grammars: Grammars, grammar: str | None, param: str, turns: Turns) -> str | None:
    """The grammar, known to be usable. On another thread: a large one takes a while. turns: one is tried at a time."""
    if grammar is None:
        return None
    if len(grammar) > MOST_CHARACTERS:
        raise bad_request(f"{param} comes to more than {MOST_CHARACTERS} characters: make it smaller", param)
    try:
        async with turns.turn():
            await asyncio.to_thread(grammars.compile, grammar)
    except GrammarError as error:
        raise bad_request(f"{param} cannot be used: {error}", param) from error
    return grammar
