"""Computes prompts ahead of time, so that the cache has them when they are asked for."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from surefoot.api.llm import LLM
from surefoot.core import Request, SamplingParams, ServiceClass

Messages = list[dict[str, Any]]
ENDS = ("\n\na", "\n\nZ")  # two texts that may follow: what prompts with either begin with does not depend on them


def document_prompt(llm: LLM, text: str) -> list[int]:
    """What all prompts begin with whose only message begins with the text; the text itself without a chat template."""
    if not llm.chat_template.templates:
        return llm.tokenizer.encode(text)
    return _common(*(llm.encode_rendered(llm.render([_user(text + end)])) for end in ENDS))


def messages_prompt(llm: LLM, messages: Messages) -> list[int]:
    """The prompt of a conversation; if its last message is not the user's, what its continuations begin with."""
    if messages[-1].get("role") == "user":
        return llm.encode_rendered(llm.render(messages))
    return _common(*(llm.encode_rendered(llm.render([*messages, _user(end.strip())])) for end in ENDS))


def read_conversations(path: Path) -> list[Messages]:
    """A JSON array of messages, or one of such arrays. Raises ValueError."""
    listed = json.loads(path.read_text(encoding="utf-8"))
    conversations = [listed] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else listed
    if not isinstance(conversations, list) or not all(_is_conversation(each) for each in conversations):
        raise ValueError(f"{path} must hold an array of messages with role and content, or an array of such arrays")
    return conversations


def compute_prompts(llm: LLM, prompts: Sequence[Sequence[int]], user: str, report: Callable[[int, int], None]) -> int:
    """Compute the prompts as this user's, one after the other. report: tokens done, and in total.

    Returns how many tokens the cache had already.
    """
    total, done, num_cached = sum(map(len, prompts)), 0, 0
    params = SamplingParams(max_tokens=1, temperature=0.0, seed=0)
    for number, prompt in enumerate(prompts):
        llm.engine.add(
            Request(f"warm {number}", tuple(prompt), params, user, service=ServiceClass.BATCH, namespace=user)
        )
        while llm.engine.has_work:
            events = llm.engine.step()
            done += llm.engine.last_step_tokens
            for event in events:
                known = event.usage.num_cached if event.usage is not None else 0
                num_cached, done = num_cached + known, done + known
            report(min(done, total), total)
    return num_cached


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _is_conversation(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) and "role" in each for each in value)


def _common(first: Sequence[int], second: Sequence[int]) -> list[int]:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return [token for token, _ in pairs]
