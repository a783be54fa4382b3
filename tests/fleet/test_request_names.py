"""What a gateway knows a prompt by: its text, cut into blocks."""

import json

from surefoot.fleet.request_names import PromptText


def prompt(user: str = "", **fields: object) -> PromptText:
    return PromptText.of(json.dumps(fields).encode(), user)


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def test_a_conversation_that_grows_begins_with_the_same_names() -> None:
    first = prompt(messages=said("a" * 300))
    longer = prompt(messages=said("a" * 300, "b" * 300), temperature=1)
    assert len(first.names) > 3
    assert longer.names[: len(first.names)] == first.names
    assert longer.num_tokens > first.num_tokens


def test_a_change_at_the_beginning_changes_every_name() -> None:
    assert not set(prompt(messages=said("b" * 300)).names) & set(prompt(messages=said("a" * 300)).names)


def test_users_have_different_names() -> None:
    assert not set(prompt("ann", prompt="a" * 300).names) & set(prompt("ben", prompt="a" * 300).names)


def test_other_bodies_have_none() -> None:
    for body in (b"", b"\xff", b"[1]", b"{}", b'{"prompt": null}'):
        assert PromptText.of(body, "") == PromptText((), 1)
