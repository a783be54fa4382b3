"""What a gateway knows a prompt by: its text, cut into blocks."""

import json

from surefoot.fleet.request_names import MOST_PARSED, TEXT_BLOCK, PromptText


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


def test_a_long_conversation_that_grows_begins_with_the_same_names() -> None:
    """It is not parsed: its bytes are named, from the first field of a prompt on."""
    texts = ["a" * 20_000, "b" * 20_000, "c" * 20_000]
    first, longer = prompt(messages=said(*texts[:2])), prompt(temperature=1, messages=said(*texts))
    num_shared = min(len(first.names), 40_000 // TEXT_BLOCK)
    assert longer.names[:num_shared] == first.names[:num_shared]
    assert longer.num_tokens > first.num_tokens
    assert not set(first.names) & set(prompt("ben", messages=said(*texts[:2])).names)


def test_a_long_body_without_a_prompt_has_no_names() -> None:
    for body in (
        b"[" * 4 * MOST_PARSED,
        b'{"text":"' + b"a" * MOST_PARSED + b'","prompt":"b"}',
        b"\xff" * 2 * MOST_PARSED,
    ):
        assert PromptText.of(body, "") == PromptText((), 1)


def test_text_that_speaks_of_a_prompt_is_none() -> None:
    """Quotes inside of a string are escaped."""
    body = json.dumps({"text": 'a "prompt": b' + "c" * MOST_PARSED}).encode()
    assert PromptText.of(body, "") == PromptText((), 1)
