"""Renders chat templates. They come with model files and are not to be trusted, so that this runs as a program of its
own, which chat.py starts, bounds and ends: nothing else stops a long comparison or a huge sum inside one process.

It imports only the standard library and jinja2. Each frame is a length of four bytes and JSON. After an empty frame,
which says that it is ready, it answers {"source", "variables", "max_characters", "cpu_seconds"} with {"text"} or
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


class Refused(TemplateError):
    """What a template says with raise_exception."""


class TooLong(Exception):
    """More text than was allowed."""


class Generation(Extension):
    """{% generation %} marks what a model has written, for training: it renders as what it holds."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class PlainNamespace(Namespace):
    """Without names that mean something to Python."""

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
    raise Refused(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Not jinja2's own, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """As transformers sets it up, since templates are written against that."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = _to_json
    made.globals.update(raise_exception=_refuse, strftime_now=_now, namespace=PlainNamespace)
    del made.globals["lipsum"]
    return made


@lru_cache(maxsize=8)
def _compiled(source: str) -> tuple[jinja2.Template, bool]:
    """The template, and whether it loops over a message's content, so that content may come in parts."""
    tree = _environment().parse(source)
    by_parts = any(_names_content(loop.iter) for loop in tree.find_all(nodes.For))
    return _environment().from_string(source), by_parts


def _names_content(node: nodes.Node) -> bool:
    names = {one.attr for one in (node, *node.find_all(nodes.Getattr)) if isinstance(one, nodes.Getattr)}
    names |= {one.value for one in node.find_all(nodes.Const) if isinstance(one.value, str)}
    names |= {one.name for one in (node, *node.find_all(nodes.Name)) if isinstance(one, nodes.Name)}
    return "content" in names


def _joined(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with its parts of text made one, for a template that wants text."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    if any(not isinstance(part, dict) or not isinstance(part.get("text"), str) for part in content):
        raise Refused("this model reads text only, but a message has a part that is not text")
    return {**message, "content": "\n".join(part["text"] for part in content)}


def _limited(parts: Iterable[str], max_characters: int) -> str:
    kept, num_characters = [], 0
    for part in parts:
        num_characters += len(part)
        if num_characters > max_characters:
            raise TooLong
        kept.append(part)
    return "".join(kept)


def render(source: str, variables: Mapping[str, Any], max_characters: int) -> str:
    template, by_parts = _compiled(source)
    if not by_parts:
        variables = {**variables, "messages": [_joined(message) for message in variables["messages"]]}
    return _limited(template.generate(variables), max_characters)


def _answer(request: Mapping[str, Any]) -> dict[str, str]:
    try:
        return {"text": render(request["source"], request["variables"], request["max_characters"])}
    except Refused as error:
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
    """From now on; so that a program whose parent is gone ends too."""
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
