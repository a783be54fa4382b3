"""What other servers' clients send, in this server's words: vLLM's and llama-server's names for what is here too, and
parameters of all that cannot change an answer here.

A parameter that is in none of the tables, or has a value that is not, stays as it is: the schema knows it or does not.
"""

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from surefoot.sampling.gbnf import lark_of

Json = dict[str, Any]

META = re.compile(r"[\\.+*?()|\[\]{}^$#&~-]")  # characters that mean something in a regex

SYNONYMS = {"n_predict": "max_tokens", "repeat_penalty": "repetition_penalty"}

# What -1 means.
MINUS_ONE: dict[str, int | None] = {
    "top_k": 0, "max_tokens": None, "max_completion_tokens": None, "max_output_tokens": None, "seed": None,
}  # fmt: skip

# Parameters of the chat template, by the name that clients give them outside it.
VARIABLES = frozenset({"enable_thinking"})

# Whatever they say, the answer is the same.
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
        # llama-server's: how it works, and details of samplers that NEUTRAL has the switches of
        "cache_prompt", "id_slot", "n_discard", "n_keep", "return_progress", "slot_id", "timings_per_token",
        "speculative.n_max", "speculative.n_min", "speculative.p_min", "dry_allowed_length", "dry_base",
        "dry_penalty_last_n", "dry_sequence_breakers", "dynatemp_exponent", "mirostat_eta", "mirostat_tau",
        "xtc_threshold",
        # Ollama's
        "keep_alive",
    }
)  # fmt: skip

# With these values, the answer is the same; others ask for what is not there.
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
    """known: names of the route's own parameters, which are never taken away."""
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
    if name == "best_of":  # the best of as many as are asked for are all of them
        n = body.get("n")
        return type(value) is int and value <= (n if type(n) is int else 1)
    neutral = NEUTRAL.get(name, ())
    return name in HARMLESS or any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in neutral)


def _move_variables(body: Json) -> None:
    given = {name: body.pop(name) for name in VARIABLES if body.get(name) is not None}
    inside = body.get("chat_template_kwargs") or {}
    if given and isinstance(inside, dict):
        body["chat_template_kwargs"] = {**given, **inside}


# ---- formats ----


def _choose_format(body: Json) -> None:
    """Into response_format, which must not ask for another."""
    given = {name: value for name in FORMATS if (value := body.pop(name, None))}
    usual = body.get("response_format")
    if isinstance(usual, dict):
        body["response_format"] = usual = _with_schema_inside(usual)
    if not given:
        return
    if len(given) > 1 or (usual is not None and usual != {"type": "text"}):
        raise ValueError(f"{', '.join(sorted(given))}: an answer has one format, give one of them or response_format")
    ((name, value),) = given.items()
    body["response_format"] = FORMATS[name](value)


def _with_schema_inside(wanted: Json) -> Json:
    """llama-server and others take the schema beside the type."""
    if wanted.get("type") in ("json_object", "json_schema") and isinstance(wanted.get("schema"), dict):
        return _json_schema(wanted["schema"])
    return wanted


def _json_schema(schema: Any) -> Json:
    """vLLM's clients send the schema, or its text."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise ValueError("guided_json is not JSON: give a schema") from error
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def _regex(regex: Any) -> Json:
    return {"type": "regex", "regex": regex}


def _choice(choices: Any) -> Json:
    if not isinstance(choices, list) or not all(isinstance(choice, str) and choice for choice in choices):
        raise ValueError("guided_choice is a list of texts, none of them empty")
    return _regex("|".join(META.sub(r"\\\g<0>", choice) for choice in choices))


def _grammar(grammar: Any) -> Json:
    """In Lark's notation, or in llama.cpp's."""
    if isinstance(grammar, str) and "::=" in grammar:
        grammar = lark_of(grammar)
    return {"type": "grammar", "grammar": grammar}


def _structured(wanted: Any) -> Json:
    """vLLM's structured_outputs: one of these, and options that say how, not what."""
    if isinstance(wanted, dict):
        if wanted.get("json_object"):
            return {"type": "json_object"}
        for name, made in (("json", _json_schema), ("regex", _regex), ("choice", _choice), ("grammar", _grammar)):
            if wanted.get(name):
                return made(wanted[name])
    raise ValueError("structured_outputs has one of json, regex, choice, grammar and json_object")


FORMATS: dict[str, Callable[[Any], Json]] = {
    "guided_json": _json_schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "structured_outputs": _structured,
    "grammar": _grammar,
    "json_schema": _json_schema,
}
