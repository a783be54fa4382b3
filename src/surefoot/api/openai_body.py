"""OpenAI's request bodies for completions and chat, as prompts and sampling parameters; answers as its reply bodies.

A field that is not known is refused: to leave it out silently could change what was asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.api.outputs import CompletionOutput, Logprob, RequestOutput
from surefoot.core import SamplingParams

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
DEFAULT_MAX_TOKENS = 16  # of a completion, as OpenAI has it

SAMPLING = (
    "temperature", "top_p", "n", "presence_penalty", "frequency_penalty", "top_k", "min_p", "repetition_penalty",
    "ignore_eos", "seed",
)  # fmt: skip
# Known, and without a meaning here.
IGNORED = {"model", "user", "metadata", "service_tier", "store", "safety_identifier", "prompt_cache_key"}
COMMON = {*SAMPLING, *IGNORED, "stop", "stop_token_ids", "logit_bias", "max_tokens", "logprobs", "stream"}
CHAT_FIELDS = COMMON | {"messages", "max_completion_tokens", "top_logprobs", "tools", "chat_template_kwargs"}
COMPLETION_FIELDS = COMMON | {"prompt", "echo"}

TokenBytes = Callable[[int], bytes]


@dataclass(frozen=True)
class Asked:
    """prompts: of a completion. messages, tools, variables: of a conversation, which has no prompts."""

    params: SamplingParams
    prompts: tuple[str | tuple[int, ...], ...] = ()
    messages: Sequence[Mapping[str, Any]] = ()
    tools: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    echo: bool = False

    @property
    def is_chat(self) -> bool:
        return not self.prompts


def parse_body(url: str, body: Mapping[str, Any], default_seed: int) -> Asked:
    """Raises ValueError, with what to do, for what cannot be."""
    if url not in (CHAT, COMPLETIONS):
        raise ValueError(f"there is no {url!r}: use {CHAT} or {COMPLETIONS}")
    if unknown := sorted(body.keys() - (CHAT_FIELDS if url == CHAT else COMPLETION_FIELDS)):
        raise ValueError(f"unknown or unsupported fields: {', '.join(unknown)}")
    if body.get("stream"):
        raise ValueError("stream does not go with a file: leave it out")
    return _chat(body, default_seed) if url == CHAT else _completion(body, default_seed)


def _chat(body: Mapping[str, Any], default_seed: int) -> Asked:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise ValueError("messages must be a list of at least one message")
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    logprobs = (body.get("top_logprobs") or 0) if body.get("logprobs") else None
    params = _params(body, limit, logprobs, default_seed)
    variables = body.get("chat_template_kwargs") or {}
    return Asked(params, messages=[_message(one) for one in messages], tools=body.get("tools"), variables=variables)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """As chat templates know it: the content one text, a developer a system."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise ValueError("a message has a role")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise ValueError("content may have parts of text alone")
        content = "".join(part["text"] for part in content)
    return {**message, "role": "system" if role == "developer" else role, "content": content or ""}


def _completion(body: Mapping[str, Any], default_seed: int) -> Asked:
    prompt = body.get("prompt")
    if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and isinstance(prompt[0], int)):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt or not all(_is_prompt(one) for one in prompt):
        raise ValueError("prompt must be a text, token ids, or a list of either")
    params = _params(body, body.get("max_tokens", DEFAULT_MAX_TOKENS), body.get("logprobs"), default_seed)
    prompts = tuple(one if isinstance(one, str) else tuple(one) for one in prompt)
    if body.get("echo") and params.logprobs is not None:
        raise ValueError("echo does not go with logprobs: logprobs of prompts are not computed")
    return Asked(params, prompts, echo=bool(body.get("echo")))


def _is_prompt(prompt: Any) -> bool:
    is_ids = isinstance(prompt, list) and bool(prompt) and all(type(token) is int for token in prompt)
    return isinstance(prompt, str) or is_ids


def _params(body: Mapping[str, Any], limit: Any, logprobs: Any, default_seed: int) -> SamplingParams:
    given = {name: body[name] for name in SAMPLING if body.get(name) is not None}
    stop, biases = body.get("stop") or (), body.get("logit_bias") or {}
    if not isinstance(biases, dict) or not all(token.isdecimal() for token in biases):
        raise ValueError("logit_bias maps token ids, written as decimal strings, to numbers")
    return SamplingParams(
        **{"seed": default_seed, **given},
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=tuple(body.get("stop_token_ids") or ()),
        logit_bias={int(token): bias for token, bias in biases.items()},
        max_tokens=limit,
        logprobs=logprobs,
    )


# ---- replies ----


def reply_body(
    asked: Asked, outputs: Sequence[RequestOutput], name: str, number: str, created: int, token_bytes: TokenBytes
) -> dict[str, Any]:
    """outputs: one for each prompt. number: the reply's own."""
    choices = []
    for place, output in enumerate(outputs):
        for answer in output.outputs:
            index = place * asked.params.n + answer.index
            echo = asked.prompts[place] if asked.echo else ""
            before = echo if isinstance(echo, str) else output.prompt or ""
            made = _message_of(answer, token_bytes) if asked.is_chat else _text_of(answer, before)
            choices.append({"index": index, **made, "finish_reason": answer.finish_reason})
    prefix, kind = ("chatcmpl", "chat.completion") if asked.is_chat else ("cmpl", "text_completion")
    head = {"id": f"{prefix}-{number}", "object": kind, "created": created, "model": name}
    return {**head, "choices": choices, "usage": _usage(outputs)}


def _usage(outputs: Sequence[RequestOutput]) -> dict[str, Any]:
    prompt = sum(output.usage.num_prompt for output in outputs)
    generated = sum(output.usage.num_generated for output in outputs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": sum(output.usage.num_cached for output in outputs)},
    }


def _message_of(answer: CompletionOutput, token_bytes: TokenBytes) -> dict[str, Any]:
    logprobs = None
    if answer.logprobs is not None:
        logprobs = {"content": [_chat_logprob(one, token_bytes) for one in answer.logprobs], "refusal": None}
    return {"message": {"role": "assistant", "content": answer.text, "refusal": None}, "logprobs": logprobs}


def _chat_logprob(found: Mapping[int, Logprob], token_bytes: TokenBytes) -> dict[str, Any]:
    """The drawn token comes first in the mapping. Bytes are there since a token may be part of a character."""

    def one(token: int) -> dict[str, Any]:
        logprob = found[token]
        return {"token": logprob.decoded_token, "logprob": logprob.logprob, "bytes": list(token_bytes(token))}

    ranked = sorted((logprob.rank, token) for token, logprob in found.items() if logprob.rank is not None)
    return {**one(next(iter(found))), "top_logprobs": [one(token) for _, token in ranked]}


def _text_of(answer: CompletionOutput, before: str) -> dict[str, Any]:
    if answer.logprobs is None:
        return {"text": before + answer.text, "logprobs": None}
    drawn = [next(iter(one.values())) for one in answer.logprobs]
    offsets, length = [], len(before)
    for logprob in drawn:
        offsets.append(length)
        length += len(logprob.decoded_token)
    logprobs = {
        "tokens": [logprob.decoded_token for logprob in drawn],
        "token_logprobs": [logprob.logprob for logprob in drawn],
        "top_logprobs": [{one.decoded_token: one.logprob for one in found.values()} for found in answer.logprobs],
        "text_offset": offsets,
    }
    return {"text": before + answer.text, "logprobs": logprobs}
