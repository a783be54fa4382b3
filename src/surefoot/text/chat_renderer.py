"""Renders chat templates in a separate program. Templates come with model files and are not trusted: chat.py starts,
limits and kills this program, since nothing inside a process can stop a long comparison or a huge sum.

It imports only the standard library and jinja2. Each frame is a length of four bytes and JSON. An empty frame says that
it is ready. Then it answers {"source", "variables", "now", "max_characters", "cpu_seconds"} with {"text"} or
{"fault", "message"}.
"""

import datetime
import json
import resource
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

LENGTH = struct.Struct(">I")


class TemplateRefusal(TemplateError):
    """The template called raise_exception."""


class TooLong(Exception):
    """The template wrote more text than is allowed."""


class Generation(Extension):
    """The block {% generation %}, which marks a model's text for training. It renders as its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class PlainNamespace(Namespace):
    """A namespace without names that have a meaning in Python."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        values = dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace may not have {name!r}")


def _refuse(message: str) -> None:
    raise TemplateRefusal(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """The filter tojson. jinja2's own escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """An environment set up like that of transformers, which templates are written for."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_refuse, namespace=PlainNamespace)
    del environment.globals["lipsum"]
    return environment


@lru_cache(maxsize=8)
def _compiled(source: str) -> tuple[jinja2.Template, bool]:
    """The template, and whether it loops over a message's content, that is, accepts content in parts."""
    tree = _environment().parse(source)
    by_parts = any(_names_content(loop.iter) for loop in tree.find_all(nodes.For))
    return _environment().from_string(source), by_parts


def _names_content(node: nodes.Node) -> bool:
    names = {part.attr for part in (node, *node.find_all(nodes.Getattr)) if isinstance(part, nodes.Getattr)}
    names |= {part.value for part in node.find_all(nodes.Const) if isinstance(part.value, str)}
    names |= {part.name for part in (node, *node.find_all(nodes.Name)) if isinstance(part, nodes.Name)}
    return "content" in names


def _joined(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with its text parts joined, for a template that takes content as text."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    if any(not isinstance(part, dict) or not isinstance(part.get("text"), str) for part in content):
        raise TemplateRefusal("this model reads text only, but a message has a part that is not text")
    return {**message, "content": "\n".join(part["text"] for part in content)}


def _limited(parts: Iterable[str], max_characters: int) -> str:
    kept, num_characters = [], 0
    for part in parts:
        num_characters += len(part)
        if num_characters > max_characters:
            raise TooLong
        kept.append(part)
    return "".join(kept)


def render(source: str, variables: Mapping[str, Any], now: str, max_characters: int) -> str:
    """now: the request's time in ISO 8601, which `strftime_now` prints. This machine's clock and zone do not show."""
    template, by_parts = _compiled(source)
    variables = {**variables, "strftime_now": datetime.datetime.fromisoformat(now).strftime}
    if not by_parts:
        variables = {**variables, "messages": [_joined(message) for message in variables["messages"]]}
    return _limited(template.generate(variables), max_characters)


def _answer(request: Mapping[str, Any]) -> dict[str, str]:
    try:
        return {"text": render(request["source"], request["variables"], request["now"], request["max_characters"])}
    except TemplateRefusal as error:
        return {"fault": "refused", "message": str(error)}
    except TemplateSyntaxError as error:
        return {"fault": "syntax", "message": f"line {error.lineno}: {error.message}"}
    except (SecurityError, OverflowError) as error:  # OverflowError: a range beyond the sandbox's
        return {"fault": "unsafe", "message": str(error)}
    except TooLong:
        return {"fault": "long", "message": ""}
    except (MemoryError, RecursionError) as error:
        return {"fault": "large", "message": type(error).__name__}
    except Exception as error:  # whatever the template's code may raise
        return {"fault": "failed", "message": f"{type(error).__name__}: {error}"[:1000]}


def _receive(channel: socket.socket, num_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < num_bytes:
        piece = channel.recv(min(num_bytes - len(data), 1 << 20))
        if not piece:
            sys.exit()  # the other side is gone
        data += piece
    return bytes(data)


def _send(channel: socket.socket, data: bytes) -> None:
    channel.sendall(LENGTH.pack(len(data)) + data)


def _limit(memory_bytes: int) -> None:
    for what, limit in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (limit, limit))


def _limit_cpu(seconds: int) -> None:
    """Limits CPU time from now on. It also ends a program whose parent is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, hard))


def serve(channel: socket.socket) -> None:
    _environment()
    _send(channel, b"")
    while True:
        (length,) = LENGTH.unpack(_receive(channel, LENGTH.size))
        request = json.loads(_receive(channel, length))
        _limit_cpu(request["cpu_seconds"])
        _send(channel, json.dumps(_answer(request)).encode())


if __name__ == "__main__":
    _limit(memory_bytes=int(sys.argv[1]))
    serve(socket.socket(fileno=0))
