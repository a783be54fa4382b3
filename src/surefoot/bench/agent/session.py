"""A coding agent's session of our own making: its rules, tools, files, and the request of each turn.

All of it follows from the sizes and the user's number, so every server gets the same bytes in every run.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_NEW = 60  # tokens of an answer, about as many as a tool call takes
TOOLS_SHARE = 0.6  # of the first prompt's text in descriptions of tools; the rest are rules
SAMPLE = 20_000  # characters from which the tokens of a text are estimated

Body = dict[str, Any]
VOCABULARY = (
    "the file project change line test before after never always output input error name value type function module "
    "path folder command answer user result search replace read write run check keep small first last next only when "
    "unless until because without within every other same exact short long known empty whole"
)
WORDS = VOCABULARY.split()
NOUNS = [
    "cache",
    "index",
    "queue",
    "block",
    "token",
    "parser",
    "reader",
    "writer",
    "config",
    "route",
    "server",
    "layer",
]
TOOLS: Mapping[str, tuple[str, ...]] = {  # names of tools, and their parameters
    "read_file": ("path", "offset", "limit"),
    "edit_file": ("path", "old_text", "new_text"),
    "write_file": ("path", "text"),
    "search_text": ("pattern", "path", "limit"),
    "find_files": ("pattern", "path"),
    "list_folder": ("path",),
    "run_command": ("command", "timeout"),
    "run_tests": ("path", "pattern"),
    "show_changes": ("path",),
    "fetch_page": ("address", "question"),
    "note_task": ("text", "state"),
    "ask_user": ("question",),
}
NUMBERS = ("offset", "limit", "timeout")
CALL = '{"name": "read_file", "arguments": {"path": "src/module_12.py"}}'  # as long as a turn's


@dataclass(frozen=True)
class Sizes:
    """Lengths of a session."""

    turns: int = 20
    first_tokens: int = 6_000  # of the first prompt
    last_tokens: int = 30_000  # of the last prompt


@dataclass(frozen=True)
class Read:
    """A file that the agent read: one call of a tool, and its result."""

    id: str
    path: str
    text: str


@dataclass(frozen=True)
class AgentSession:
    """Everything that one user's agent sends."""

    system: tuple[str, ...]  # blocks of the system text
    tools: Mapping[str, tuple[str, Body]]  # descriptions and JSON schemas, by name
    task: str
    reads: tuple[Read, ...]  # one before each turn but the first


def make_session(user: int, sizes: Sizes, count: Callable[[str], int]) -> AgentSession:
    """The session of a user. count: number of a text's tokens. Tools and rules are those of all users; the folder that
    ends the rules, the task and the files are the user's own."""
    shared, own = random.Random(0), random.Random(1 + user)
    prose_tokens, code_tokens = (count(make(random.Random(2), SAMPLE)) / SAMPLE for make in (prose, code))
    task = f"Find the fault and mend it. {prose(own, 200)}"
    spare = (sizes.first_tokens - count(json.dumps(_tools(lambda: "")) + task)) / prose_tokens
    tools = _tools(lambda: prose(shared, int(TOOLS_SHARE * spare / len(TOOLS))))
    rules = prose(shared, int((1 - TOOLS_SHARE) * spare))
    grown = (sizes.last_tokens - sizes.first_tokens) / max(1, sizes.turns - 1)
    length = int((grown - count(CALL)) / code_tokens)
    paths = [f"src/{own.choice(NOUNS)}_{number}.py" for number in range(1, sizes.turns)]
    reads = tuple(Read(f"call_{user}_{i}", path, code(own, length)) for i, path in enumerate(paths))
    system = ("You are a coding agent.\n", f"{rules}\nYour working directory is /home/user{user}/project.")
    return AgentSession(system, tools, task, reads)


def _tools(describe: Callable[[], str]) -> dict[str, tuple[str, Body]]:
    return {name: (f"Use {name}. {describe()}", _schema(names)) for name, names in TOOLS.items()}


def _schema(names: tuple[str, ...]) -> Body:
    kinds = {name: {"type": "integer" if name in NUMBERS else "string"} for name in names}
    required = [name for name in names if name not in NUMBERS]
    return {"type": "object", "properties": kinds, "required": required, "additionalProperties": False}


def messages_body(session: AgentSession, turn: int) -> Body:
    """The request of a turn as Claude Code sends it. Each answer is to be a call of a tool."""
    history: list[Body] = [{"role": "user", "content": session.task}]
    for read in session.reads[:turn]:
        call = {"type": "tool_use", "id": read.id, "name": "read_file", "input": {"path": read.path}}
        result = {"type": "tool_result", "tool_use_id": read.id, "content": read.text}
        history += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    tools = [
        {"name": name, "description": text, "input_schema": schema} for name, (text, schema) in session.tools.items()
    ]
    system = [{"type": "text", "text": text} for text in session.system]
    return {"system": system, "messages": history, "tools": tools, "tool_choice": {"type": "any"}}


def chat_body(session: AgentSession, turn: int) -> Body:
    """The same as OpenCode and Qwen Code send it."""
    first = {"role": "system", "content": "".join(session.system)}
    history: list[Body] = [first, {"role": "user", "content": session.task}]
    for read in session.reads[:turn]:
        function = {"name": "read_file", "arguments": json.dumps({"path": read.path})}
        calls = [{"id": read.id, "type": "function", "function": function}]
        history.append({"role": "assistant", "content": "", "tool_calls": calls})
        history.append({"role": "tool", "tool_call_id": read.id, "content": read.text})
    tools = [
        {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
        for name, (text, schema) in session.tools.items()
    ]
    options = {"tool_choice": "required", "stream_options": {"include_usage": True}}
    return {"messages": history, "tools": tools, **options}


def prose(rng: random.Random, length: int) -> str:
    """Sentences with this many characters."""
    return _filled(lambda: " ".join(rng.choices(WORDS, k=12)).capitalize() + ".\n", length)


def code(rng: random.Random, length: int) -> str:
    """Lines of Python with this many characters."""

    def function() -> str:
        noun, other, number = rng.choice(NOUNS), rng.choice(NOUNS), rng.randrange(1000)
        head = f"def {rng.choice(WORDS)}_{noun}_{number}({noun}: int, {other}s: list[int]) -> int:\n"
        body = f"    for number, {other} in enumerate({other}s):\n        {noun} += {number} * number\n"
        return f"{head}{body}    return {noun} % {rng.randrange(2, 100)}\n\n"

    return _filled(function, length)


def _filled(piece: Callable[[], str], length: int) -> str:
    text = ""
    while len(text) < length:
        text += piece()
    return text[: max(0, length)]
