"""Parameters as other servers' clients send them: names of vLLM and llama-server for what exists here too, parameters
that cannot change an answer here, and unknown ones.

A parameter or value that is in none of the tables stays as it is, for the schema to accept, or to drop and note, or to
refuse. `noting_unknown` decides that for each HTTP request or line of a batch. The decision reaches the schemas through
a context variable, since FastAPI hands no context of its own to pydantic.
"""

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from surefoot.core.json_bounds import json_excess
from surefoot.sampling.grammar import lark_of

Json = dict[str, Any]
MOST_GRAMMAR_CHARACTERS = 64 << 10

_META = re.compile(r"[\\.+*?()|\[\]{}^$#&~-]")  # characters that mean something in a regex

SYNONYMS = {"n_predict": "max_tokens", "repeat_penalty": "repetition_penalty"}

# Parameters for which -1 has a meaning, and that meaning.
MINUS_ONE: dict[str, int | None] = {
    "top_k": 0, "max_tokens": None, "max_completion_tokens": None, "max_output_tokens": None, "seed": None,
}  # fmt: skip

# Variables of the chat template that clients send as parameters of their own.
VARIABLES = frozenset({"enable_thinking"})

# Parameters that cannot change the answer, whatever their value.
HARMLESS = frozenset(
    {
        # OpenAI's
        "client_metadata", "context_management", "max_tool_calls", "metadata", "prediction", "prompt_cache_key",
        "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "truncation",
        "user", "verbosity",
        # Anthropic's
        "betas", "cache_control", "inference_geo", "speed",
        # vLLM's
        "cache_salt", "guided_decoding_backend", "priority", "request_id", "spaces_between_special_tokens",
        # llama-server's: how it runs, and details of samplers that NEUTRAL switches off
        "cache_prompt", "id_slot", "n_discard", "n_keep", "return_progress", "slot_id", "timings_per_token",
        "speculative.n_max", "speculative.n_min", "speculative.p_min", "dry_allowed_length", "dry_base",
        "dry_penalty_last_n", "dry_sequence_breakers", "dynatemp_exponent", "mirostat_eta", "mirostat_tau",
        "xtc_threshold",
        # Ollama's
        "keep_alive",
    }
)  # fmt: skip

# Parameters that cannot change the answer with these values; other values ask for something that is missing here.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "modalities": (["text"],), "functions": ([],), "function_call": ("none", "auto"), "suffix": ("",),
    "mcp_servers": ([],),
    "bad_words": ([],), "early_stopping": (False,), "echo": (False,), "include_reasoning": (True,),
    "include_stop_str_in_output": (False,), "length_penalty": (1,), "logits_processors": ([],),
    "mm_processor_kwargs": ({},), "parse_tool_calls": (True,), "prompt_logprobs": (0, False),
    "return_tokens_as_token_ids": (False,), "separate_reasoning": (True,), "use_beam_search": (False,),
    "vllm_xargs": ({},),
    "dry_multiplier": (0,), "dynatemp_range": (0,), "lora": ([],), "min_keep": (0,), "mirostat": (0,), "n_probs": (0,),
    "penalize_nl": (False,), "repeat_last_n": (-1,), "t_max_predict_ms": (0, -1), "tfs_z": (1,), "top_a": (0,),
    "top_n_sigma": (-1, 0), "typical_p": (1,), "xtc_probability": (0,),
}  # fmt: skip


def translate(body: Json, known: Collection[str]) -> Json:
    """The body in this server's names. known: the route's own parameters, which are never dropped."""
    body = {name: value for name, value in body.items() if name in known or not _says_nothing(body, name, value)}
    for name, usual in SYNONYMS.items():
        if name in body and name not in known and usual in known:
            value = body.pop(name)
            body[usual] = value if body.get(usual) is None else body[usual]
    for name, meaning in MINUS_ONE.items():
        if name in known and type(body.get(name)) is int and body[name] == -1:
            body[name] = meaning
    if "chat_template_kwargs" in known:
        _move_variables(body)
    if "response_format" in known:
        _choose_format(body)
    return body


def _says_nothing(body: Json, name: str, value: Any) -> bool:
    if name == "best_of":  # the best n of n answers are all of them
        n = body.get("n")
        return type(value) is int and value <= (n if type(n) is int else 1)
    neutral = NEUTRAL.get(name, ())
    return name in HARMLESS or any(
        value == harmless and isinstance(value, bool) == isinstance(harmless, bool) for harmless in neutral
    )


def _move_variables(body: Json) -> None:
    variables = {name: body.pop(name) for name in VARIABLES if body.get(name) is not None}
    inside = body.get("chat_template_kwargs") or {}
    if variables and isinstance(inside, dict):
        body["chat_template_kwargs"] = {**variables, **inside}


# ---- formats ----


def _choose_format(body: Json) -> None:
    """Move other servers' format parameters into response_format, which must not name another format."""
    formats = {name: value for name in FORMATS if (value := body.pop(name, None))}
    usual = body.get("response_format")
    if isinstance(usual, dict):
        body["response_format"] = usual = _with_schema_inside(usual)
    if not formats:
        return
    if len(formats) > 1 or (usual is not None and usual != {"type": "text"}):
        raise ValueError(f"{', '.join(sorted(formats))}: an answer has one format, give one of them or response_format")
    ((name, value),) = formats.items()
    body["response_format"] = FORMATS[name](value)


def _with_schema_inside(wanted: Json) -> Json:
    """llama-server and others put the schema beside the type."""
    if wanted.get("type") in ("json_object", "json_schema") and isinstance(wanted.get("schema"), dict):
        return _json_schema(wanted["schema"])
    return wanted


def _json_schema(schema: Any) -> Json:
    """vLLM's clients send the schema as an object or as text."""
    if isinstance(schema, str):
        excess = json_excess(schema.encode(errors="replace"))
        if excess is not None:
            raise ValueError(f"guided_json has {excess}: give a smaller schema")
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise ValueError("guided_json is not JSON: give a schema") from error
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def literal_regex(text: str) -> str:
    return _META.sub(r"\\\g<0>", text)


def _regex(regex: Any) -> Json:
    return {"type": "regex", "regex": regex}


def _choice(choices: Any) -> Json:
    if not isinstance(choices, list) or not all(isinstance(choice, str) and choice for choice in choices):
        raise ValueError("guided_choice must be a list of non-empty texts")
    return _regex("|".join(map(literal_regex, choices)))


def _grammar(grammar: Any) -> Json:
    """A grammar in Lark's notation, or in llama.cpp's GBNF. One that is too long stays as it is, to be refused."""
    if isinstance(grammar, str) and len(grammar) <= MOST_GRAMMAR_CHARACTERS and "::=" in grammar:
        grammar = lark_of(grammar)
    return {"type": "grammar", "grammar": grammar}


def _structured(wanted: Any) -> Json:
    """vLLM's structured_outputs: one format, and options that do not change it."""
    if isinstance(wanted, dict):
        if wanted.get("json_object"):
            return {"type": "json_object"}
        for name, made in (("json", _json_schema), ("regex", _regex), ("choice", _choice), ("grammar", _grammar)):
            if wanted.get(name):
                return made(wanted[name])
    raise ValueError("structured_outputs needs one of json, regex, choice, grammar and json_object")


FORMATS: dict[str, Callable[[Any], Json]] = {
    "guided_json": _json_schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "structured_outputs": _structured,
    "grammar": _grammar,
    "json_schema": _json_schema,
}


# ---- unknown parameters ----

MOST_NAMES = 8  # names that the header lists; all are counted
MOST_CHARACTERS = 64  # of each name


@dataclass
class UnknownParameters:
    """The unknown parameters of one request."""

    is_strict: bool  # they are left for pydantic to refuse
    names: list[str] = field(default_factory=list)  # the first MOST_NAMES of them
    count: int = 0

    def note(self, name: str) -> None:
        self.count += 1
        if len(self.names) < MOST_NAMES:
            self.names.append(name[:MOST_CHARACTERS])

    @property
    def warning(self) -> str:
        """The value of a Warning header: printable ASCII without quotes, of bounded length."""
        names = ", ".join(
            "".join(c if c.isprintable() and c not in '"\\' else "?" for c in name) for name in self.names
        )
        rest = f" and {self.count - len(self.names)} more" if self.count > len(self.names) else ""
        return f'199 - "unknown parameter ignored: {names.encode("ascii", "replace").decode()}{rest}"'


_current: ContextVar[UnknownParameters | None] = ContextVar("unknown_parameters", default=None)


@contextmanager
def noting_unknown(is_strict: bool) -> Iterator[UnknownParameters]:
    """Bodies validated inside of this context drop unknown parameters and note them here. Outside they refuse them."""
    unknown = UnknownParameters(is_strict)
    token = _current.set(unknown)
    try:
        yield unknown
    finally:
        _current.reset(token)


def is_strict() -> bool:
    unknown = _current.get()
    return unknown is None or unknown.is_strict


def note(name: str) -> None:
    unknown = _current.get()
    if unknown is not None:
        unknown.note(name)


def note_kind(part: str, kind: str) -> None:
    """A part of a conversation, such as a block, of a kind that is not known. Raises ValueError where it is refused."""
    if is_strict():
        raise ValueError(f"unknown {part} type {kind!r}: leave it out")
    note(f"{part}s of type {kind}")


def without_unknown(data: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The parameters that pydantic is to check. An unknown parameter that is null is dropped without a note. Where
    unknown ones are refused, the first is kept for pydantic to refuse."""
    kept = {name: value for name, value in data.items() if name in known}
    unknown = (name for name, value in data.items() if name not in known and value is not None)
    if is_strict():
        return kept | {name: data[name] for name in itertools.islice(unknown, 1)}
    for name in unknown:
        note(str(name))
    return kept
