"""Renders conversations into prompts with the chat template of the model's file."""

import json
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from surefoot.core.model_files import MAX_CONFIG_BYTES, in_folder, read_text
from surefoot.machine.cpu_usage import PATIENCE, CpuAllowance
from surefoot.text.huggingface import read_json
from surefoot.text.tokenizer import Tokenizer
from surefoot.text.vocabulary import ChatTemplateError, token_text

Message = Mapping[str, Any]
_REASONING = ("reasoning_content", "thinking", "reasoning")  # keys of a message's reasoning, in clients and templates
_CUT = "<<surefoot continues here>> "  # the space at the end shows whether the template strips content
_MAX_TEMPLATES = 64
_RENDERER = Path(__file__).with_name("chat_renderer.py")  # run as a program: this process must not import jinja2
_LENGTH = struct.Struct(">I")  # before each frame, as in chat_renderer.py
_OWN = "give another template instead of the model's own"
_FAULTS = {
    "refused": "The chat template refuses this conversation: {}",
    "syntax": f"The chat template is not valid Jinja, {{}}: {_OWN}",
    "unsafe": f"The chat template does what templates may not do ({{}}): {_OWN}",
    "failed": f"The chat template failed on this conversation ({{}}): check the messages' fields, or {_OWN}",
    "large": f"The chat template needs too much memory or calls itself without end ({{}}): {_OWN}",
}


@dataclass(frozen=True)
class TemplateLimits:
    """Limits on what a template may use. The defaults are far above the needs of any honest template."""

    seconds: float = 5.0  # of processor time, to render one conversation
    memory_bytes: int = 1 << 30  # address space of the rendering program
    template_characters: int = 1 << 18  # length of the template
    output_characters: int = 1 << 24  # length of a prompt


class ChatTemplate:
    """A model's chat templates, by name: `default`, and perhaps `tool_use` for conversations with tools. `tokens` are
    the special tokens that templates print (bos_token, eos_token). Thread-safe."""

    def __init__(
        self,
        templates: str | Mapping[str, str],
        tokens: Mapping[str, Any] | None = None,
        limits: TemplateLimits | None = None,
    ) -> None:
        self.templates = {"default": templates} if isinstance(templates, str) else dict(templates)
        self.tokens = dict(tokens or {})
        self.limits = limits or TemplateLimits()
        for name, source in self.templates.items():
            if len(source) > self.limits.template_characters:
                raise ChatTemplateError(f"The chat template {name!r} is unreasonably long: {_OWN}")
        self._renderer = _Renderer(self.limits)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        now: datetime | None = None,
        **variables: Any,
    ) -> str:
        """The prompt, with special tokens written out, for `Tokenizer.encode_rendered`. Messages must be shielded
        before.

        With `continue_final_message` the prompt ends inside the last message, for the model to continue it. now: the
        time that the template's `strftime_now` prints, by default the current time in UTC.
        """
        if continue_final_message and add_generation_prompt:
            raise ValueError("continue_final_message needs add_generation_prompt=False: it begins no new message")
        prepared = [_prepared(message) for message in messages]
        final = _mark_end(prepared) if continue_final_message else ""
        text = self._renderer.render(
            self._source(tools),
            {
                "messages": prepared,
                "tools": tools,
                "documents": None,
                "add_generation_prompt": add_generation_prompt,
                **self.tokens,
                **variables,
            },
            now or datetime.now(UTC),
        )
        return _cut(text, final) if continue_final_message else text

    def _source(self, tools: object) -> str:
        name = "tool_use" if tools is not None and "tool_use" in self.templates else "default"
        if name not in self.templates:
            names = ", ".join(sorted(self.templates)) or "none"
            raise ChatTemplateError(
                f"The model has no chat template named default (it has: {names}): give one with --chat-template"
            )
        return self.templates[name]

    def start(self) -> None:
        """Starts the rendering program, if there is a template for it, so that the first conversation need not."""
        if self.templates:
            self._renderer.start()

    def close(self) -> None:
        self._renderer.stop()


def chat_template_from_gguf(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate:
    """The file's template. A file without one gives a ChatTemplate that raises when it is used."""
    key = "tokenizer.chat_template"
    named = {name: metadata[f"{key}.{name}"] for name in metadata.get(key + "s", []) if f"{key}.{name}" in metadata}
    default = {"default": metadata[key]} if key in metadata else {}
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("unknown", "padding")}
    tokens = {
        "bos_token": tokenizer.text_of(tokenizer.ids.bos),
        "eos_token": tokenizer.text_of(tokenizer.ids.eos),
        "unk_token": tokenizer.text_of(ids["unknown"]),
        "pad_token": tokenizer.text_of(ids["padding"]),
    }
    return ChatTemplate({**named, **default}, tokens)


def chat_template_from_folder(folder: Path) -> ChatTemplate:
    """The template of a Hugging Face folder: chat_template.jinja, or tokenizer_config.json's."""
    config = read_json(folder / "tokenizer_config.json")
    stored = config.get("chat_template") or read_json(folder / "chat_template.json").get("chat_template") or {}
    if isinstance(stored, list):
        stored = {str(entry.get("name")): entry.get("template") for entry in stored if isinstance(entry, dict)}
    templates = {"default": stored} if isinstance(stored, str) else stored
    if not isinstance(templates, dict) or not all(isinstance(source, str) for source in templates.values()):
        raise ChatTemplateError(f"{folder}: chat_template is neither a text nor texts by name: {_OWN}")
    templates |= _template_files(folder)
    tokens = {name: token_text(value) for name, value in config.items() if name.endswith("_token") and value}
    return ChatTemplate(templates, {name: text for name, text in tokens.items() if text})


def _template_files(folder: Path) -> dict[str, str]:
    """The templates in files of their own, by name; chat_template.jinja is `default`."""
    names = {"default": "chat_template.jinja"}
    others = sorted((folder / "additional_chat_templates").glob("*.jinja"))[:_MAX_TEMPLATES]
    names |= {file.stem: f"additional_chat_templates/{file.name}" for file in others}
    files = {name: in_folder(folder, file) for name, file in names.items()}
    return {name: read_text(file, MAX_CONFIG_BYTES) for name, file in files.items() if file is not None}


def _prepared(message: Message) -> dict[str, Any]:
    """The message as templates expect it: reasoning under the keys that they read, arguments of calls as objects."""
    prepared = dict(message)
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    if reasoning is not None:
        prepared = {"thinking": reasoning, **prepared, "reasoning_content": reasoning}
    if message.get("tool_calls"):
        prepared["tool_calls"] = [_prepared_call(call) for call in message["tool_calls"]]
    return prepared


def _prepared_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call  # written by a model: not always JSON
    return {**call, "function": {**function, "arguments": arguments}}


def _mark_end(messages: list[dict[str, Any]]) -> str:
    """Marks the end of the last message's text, and returns that text."""
    content = messages[-1].get("content") if messages else None
    if isinstance(content, str):
        messages[-1]["content"] = content + _CUT
        return content
    parts = [dict(part) for part in content] if isinstance(content, list) else []
    for part in reversed(parts):
        if isinstance(part.get("text"), str):
            final: str = part["text"]
            part["text"] = final + _CUT
            messages[-1]["content"] = parts
            return final
    raise ValueError("continue_final_message needs a last message with text in it")


def _cut(text: str, final: str) -> str:
    end = text.rfind(_CUT.strip())
    if end < 0 or final.strip() not in text[:end]:
        raise ChatTemplateError("The chat template changes the last message, so that it cannot be continued")
    return text[:end] if text.startswith(_CUT, end) else text[:end].rstrip()


class _Renderer:
    """The rendering program, started on first use, and again after it had to be killed."""

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._running: _Program | None = None

    def render(self, source: str, variables: Mapping[str, Any], now: datetime) -> str:
        limits = self._limits
        request = {
            "source": source,
            "variables": variables,
            "now": now.isoformat(),
            "max_characters": limits.output_characters,
            "cpu_seconds": math.ceil(limits.seconds),
        }
        try:
            data = json.dumps(request).encode()
        except (TypeError, ValueError) as error:
            raise ValueError(f"Messages, tools and template variables must be plain data: {error}") from error
        with self._lock:
            answer = self._ask(data)
        if "text" in answer:
            return answer["text"]
        if answer["fault"] == "long":
            raise ChatTemplateError(f"The chat template writes more than {limits.output_characters} characters: {_OWN}")
        raise ChatTemplateError(_FAULTS[answer["fault"]].format(answer["message"]))

    def start(self) -> None:
        with self._lock:
            self._program()

    def _program(self) -> "_Program":
        if self._running is None or not self._running.is_alive():
            self._running = _start_program(self._limits.memory_bytes)
        return self._running

    def _ask(self, data: bytes) -> dict[str, str]:
        program = self._program()
        try:
            answer = program.ask(data, self._limits)
        except (OSError, EOFError) as error:  # a TimeoutError among them
            self._end()
            took_long = isinstance(error, TimeoutError) or program.has_used_its_time()
            fault = f"took more than {self._limits.seconds} s" if took_long else "made its program fail"
            raise ChatTemplateError(f"The chat template {fault}: {_OWN}") from None
        return json.loads(answer)  # type: ignore[no-any-return]

    def _end(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None

    def stop(self) -> None:
        with self._lock:
            self._end()


class _Program:
    """A running chat_renderer.py, and the socket that is its standard input."""

    _START_SECONDS = 60.0

    def __init__(self, memory_bytes: int) -> None:
        self._channel, theirs = socket.socketpair()
        # It has its own session, so that Ctrl-C does not reach it, and a minimal environment, which may hold secrets.
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | {
            name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ
        }
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", str(_RENDERER), str(memory_bytes)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._process = process
        self.end = weakref.finalize(self, _end, process, self._channel)
        self._receive(CpuAllowance(process.pid, self._START_SECONDS), max_bytes=0)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def has_used_its_time(self) -> bool:
        """Whether it ended at the limit of processor time that it set itself."""
        return self._process.poll() == -signal.SIGXCPU

    def ask(self, data: bytes, limits: TemplateLimits) -> bytes:
        allowance = CpuAllowance(self._process.pid, limits.seconds)
        self._channel.settimeout(PATIENCE * limits.seconds)
        self._channel.sendall(_LENGTH.pack(len(data)) + data)
        return self._receive(allowance, max_bytes=12 * limits.output_characters + 4096)  # 12: as a pair of \uXXXX

    def _receive(self, allowance: CpuAllowance, max_bytes: int) -> bytes:
        (length,) = _LENGTH.unpack(self._read(allowance, _LENGTH.size))
        if length > max_bytes:
            raise EOFError
        return self._read(allowance, length)

    def _read(self, allowance: CpuAllowance, num_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < num_bytes:
            self._channel.settimeout(allowance.wait_s())
            with suppress(TimeoutError):  # the allowance tells whether to go on
                data += self._receive_some(num_bytes - len(data))
        return bytes(data)

    def _receive_some(self, most: int) -> bytes:
        if piece := self._channel.recv(min(most, 1 << 20)):
            return piece
        raise EOFError


def _start_program(memory_bytes: int) -> _Program:
    try:
        return _Program(memory_bytes)
    except (OSError, EOFError) as error:  # a TimeoutError among them
        raise RuntimeError(f"The program that renders chat templates does not start ({error!r})") from error


def _end(process: subprocess.Popen[bytes], channel: socket.socket) -> None:
    channel.close()
    process.kill()
    process.wait()
