"""`surefoot chat`: a conversation at the terminal."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from surefoot.api import LLM, Piece, RequestOutput, SamplingParams
from surefoot.api.defaults import WHOLE
from surefoot.api.opening import short_name
from surefoot.cli import options
from surefoot.cli.errors import EXPECTED, exit_on_error
from surefoot.cli.interrupts import interrupts
from surefoot.cli.keyboard import Read, choose_reader, quiet_terminal
from surefoot.cli.one_user import OneUserOptions, Speedometer, needs_template, with_groups
from surefoot.cli.wrapping import Layout, Verbatim, WordWrap, visible
from surefoot.core.request import SETTABLE as SAMPLING
from surefoot.weights import writing_beside

HELP = """[bold]/help[/]               these lines
[bold]/clear[/]              forget the conversation, keep the system message
[bold]/system[/] [dim]\\[TEXT][/]      set the system message, or remove it
[bold]/set[/] [dim]\\[NAME VALUE][/]   set a sampling parameter (none to unset); alone: show them
[bold]/stats[/]              the last answer's speed
[bold]/quit[/]               leave; Ctrl-D too
Ctrl-C stops an answer. Alt-Enter begins another line of the same message; so does Enter after a \\ at the end.
A pasted text is one message, whatever its lines. Arrow keys recall earlier messages, Ctrl-R searches them."""
SETTABLE: dict[str, Callable[[str], Any]] = {
    **{name: int if name in WHOLE else float for name in SAMPLING}, "seed": int, "max_tokens": int, "stop": str,
}  # fmt: skip


class Leave(Exception):
    """The user has asked to leave."""


class ChatSession:
    """The messages so far and the commands that change them. Does not know where lines come from."""

    def __init__(
        self, llm: LLM, params: SamplingParams, system: str | None, console: Console, speedometer: Speedometer | None
    ) -> None:
        self._llm = llm
        self._params = params
        self._system = system
        self._console = console
        self._speedometer = speedometer
        self._messages: list[dict[str, str]] = []
        self._last: RequestOutput | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": self._help, "/clear": self._clear, "/system": self._set_system, "/set": self._set,
            "/stats": self._stats, "/quit": self._quit, "/exit": self._quit,
        }  # fmt: skip

    def take(self, line: str) -> None:
        """A command or a message."""
        if not line.strip():
            return
        name, _, rest = line.strip().partition(" ")
        if not name.startswith("/"):
            self._answer(line)
        elif name in self._commands:
            self._commands[name](rest.strip())
        else:
            self._say(f"There is no command {name}; /help lists them. (To send it as a message, begin with a space.)")

    # ---- commands ----

    def _help(self, _: str) -> None:
        self._console.print(HELP)

    def _clear(self, _: str) -> None:
        self._messages.clear()
        self._say("Forgotten.")

    def _set_system(self, text: str) -> None:
        self._system = text or None
        self._say("The system message is set." if text else "There is no system message now.")

    def _set(self, text: str) -> None:
        name, _, value = text.partition(" ")
        if not name:
            names = [field.name for field in fields(self._params) if field.name in SETTABLE]
            self._say("\n".join(f"{name} {getattr(self._params, name)}" for name in names))
            return
        try:
            self._params = replace(self._params, **{name: _parse(name, value.strip())})
        except ValueError as error:
            self._say(str(error))
        else:
            self._say(f"{name} is {getattr(self._params, name)} now.")

    def _stats(self, _: str) -> None:
        if self._last is None:
            self._say("There is no answer yet.")
            return
        if self._speedometer is None:
            self._speedometer = Speedometer(self._llm)
        self._say(self._speedometer.line(self._last))

    def _quit(self, _: str) -> None:
        raise Leave

    def _say(self, text: str) -> None:
        self._console.print(escape(visible(text)), style="dim")

    # ---- answers ----

    def _answer(self, line: str) -> None:
        messages = [*self._messages, {"role": "user", "content": line.strip()}]
        system = [{"role": "system", "content": self._system}] if self._system else []
        try:
            text, output = self._stream([*system, *messages])
        except EXPECTED as error:
            self._say(f"{error}\n(/clear begins anew.)")
            return
        self._messages = [*messages, {"role": "assistant", "content": text}]
        if output is not None:
            self._last = output
            if self._speedometer is not None:
                self._say(self._speedometer.line(output))

    def _stream(self, messages: list[dict[str, str]]) -> tuple[str, RequestOutput | None]:
        """The answer's text, and its output unless Ctrl-C cut it short."""
        texts: list[str] = []
        piece: Piece | None = None
        layout: Layout = WordWrap(lambda: self._console.width) if self._console.file.isatty() else Verbatim()
        with interrupts() as stopped, contextlib.closing(self._llm.stream(messages, self._fitting(messages))) as pieces:
            for piece in pieces:
                texts.append(piece.text)
                self._write(layout.feed(piece.text))
                if stopped():
                    break
        self._write(f"{layout.finish()}\n")
        if stopped():
            self._say("(stopped)")
            return "".join(texts), None
        output = piece.output if piece is not None else None
        if output is not None and (error := output.outputs[0].error) is not None:
            raise ValueError(error)
        return "".join(texts), output

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()

    def _fitting(self, messages: list[dict[str, str]]) -> SamplingParams:
        """The parameters, with max_tokens cut to what the context still has room for."""
        if self._params.max_tokens is None:
            return self._params
        num_prompt = len(self._llm.encode_rendered(self._llm.render(messages)))
        left = max(1, self._llm.max_context - num_prompt)
        return replace(self._params, max_tokens=min(self._params.max_tokens, left))


def _parse(name: str, value: str) -> Any:
    if name not in SETTABLE:
        raise ValueError(f"There is no parameter {name!r} to set: choose one of {', '.join(SETTABLE)}")
    if name == "stop":
        return () if value in ("", "none") else (value.replace("\\n", "\n").replace("\\t", "\t"),)
    if value == "none" and name in ("seed", "max_tokens"):
        return None
    try:
        return SETTABLE[name](value)
    except ValueError:
        raise ValueError(f"{name} takes a number, not {value!r}") from None


def _greeting(llm: LLM, name: str) -> str:
    facts = [
        f"[bold]{escape(visible(name))}[/bold]", llm.config.family, f"{len(llm.config.layers)} layers",
        f"context {llm.max_context}", f"{llm.backend.variant}, {llm.backend.threads} threads",
    ]  # fmt: skip
    sampling = escape(f"sampling: {llm.sampling_defaults}")
    hint = "/help for commands, Ctrl-C stops an answer, Ctrl-D leaves"
    return " · ".join(facts) + f"\n[dim]{sampling}[/dim]\n[dim]{hint}[/dim]"


@with_groups
def chat(model: options.Model, shared: OneUserOptions, packed_cache: options.Cache = options.AUTO) -> None:
    """Talk with a model. The conversation is remembered until /clear; /help lists the commands.

    Each answer is followed by its time to first token, its tokens per second, and the share of the memory bandwidth
    that decoding used. The bandwidth is what limits decoding.
    """
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with quiet_terminal() if at_terminal else contextlib.nullcontext():
        with exit_on_error():
            opened = shared.open(model)
            needs_template(opened, model)
            params = shared.params(opened)
            cache = options.cache(packed_cache)
            llm = shared.load(opened, cache)
            speedometer = shared.speedometer(llm, is_shown=at_terminal)
        # Rich wraps by words, but takes a pipe for a terminal of 80 columns.
        console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        if at_terminal:
            console.print(_greeting(llm, short_name(model)))
        with writing_beside(cache) as begin:
            begin()
            _converse(ChatSession(llm, params, shared.system, console, speedometer), choose_reader(at_terminal))


def _converse(conversation: ChatSession, read: Read) -> None:
    while True:
        try:
            return _take_lines(conversation, read)
        except KeyboardInterrupt:  # between two lines, where a Ctrl-C may come that was pressed at the prompt
            continue


def _take_lines(conversation: ChatSession, read: Read) -> None:
    while True:
        try:
            line = read()
        except KeyboardInterrupt:  # the line is dropped
            continue
        except EOFError:
            return
        try:
            conversation.take(line)
        except KeyboardInterrupt:
            print()
        except Leave:
            return
