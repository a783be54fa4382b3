"""Grammars over a vocabulary of single bytes and a few words."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from surefoot.sampling.grammar import GrammarError, Grammars, json_grammar, json_rule, lark_grammar, regex_grammar
from tests.sampling.grammar import END, WORDS, Bytes

VOCAB = 256 + 1 + len(WORDS) + 3  # a padded head has ids that nobody has


def grammars() -> Grammars:
    return Grammars(Bytes(), {END})


def allowed(made: Any) -> set[int]:
    logits = np.ones(VOCAB, np.float32)
    made.apply(logits)
    assert set(np.unique(logits)) <= {1.0, -np.inf}
    return set(np.flatnonzero(logits == 1).tolist())


def follow(grammar: str, tokens: Sequence[int]) -> set[int]:
    made = grammars().start(grammar)
    for token in tokens:
        assert token in allowed(made), Bytes.pieces[token]
        made.accept(token)
    return allowed(made)


def test_regex() -> None:
    cat = 256 + 1 + WORDS.index(b"cat")
    assert follow(regex_grammar("cat|car"), []) == {ord("c"), cat}
    assert follow(regex_grammar("cat|car"), list(b"ca")) == {ord("t"), ord("r")}
    assert follow(regex_grammar("cat|car"), [cat]) == {END}


class Spaced(Bytes):
    """Puts a space before each text, as SentencePiece does."""

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        return list(b" " + text.encode())


def test_an_encoders_own_space_is_not_the_grammars() -> None:
    """What a grammar leaves no choice about is encoded."""
    made = Grammars(Spaced(), {END}).start(regex_grammar("(ab|cd)x"), [ord("a")])
    assert allowed(made) == {ord("b")}
    assert ord(" ") not in allowed(Grammars(Spaced(), {END}).start(json_grammar({"type": "object"})))


def test_what_was_drawn_is_taken_up_again() -> None:
    grammar, tokens = regex_grammar("[0-9]{3}x"), list(b"12")
    assert allowed(grammars().start(grammar, tokens)) == follow(grammar, tokens) == set(range(ord("0"), ord("9") + 1))


def test_one_answer_does_not_move_another() -> None:
    made = grammars()
    grammar = regex_grammar("ab|cd")
    first, second = made.start(grammar), made.start(grammar)
    first.accept(ord("a"))
    assert allowed(second) == {ord("a"), ord("c")}
    assert allowed(first) == {ord("b")}


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
    "required": ["name", "tags"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_drawn_fits_the_schema(seed: int) -> None:
    random, made, text = np.random.default_rng(seed), grammars().start(json_grammar(SCHEMA)), b""
    for _ in range(400):
        # Letters rather than odd characters, and a closing quote now and then, so that it comes to an end.
        choices = sorted(allowed(made))
        plain = [token for token in choices if Bytes.pieces[token] in (b"a", b"b", b'"', b",", b"]", b"</s>")]
        token = int(random.choice(plain or choices))
        if token == END:
            break
        made.accept(token)
        text += Bytes.pieces[token]
    found = json.loads(text)
    assert set(found) == {"name", "tags"}
    assert len(found["tags"]) <= 3
    assert set(found["tags"]) <= {"a", "b"}


def test_lark_with_json_inside() -> None:
    grammar = lark_grammar(f'start: "<" obj ">"\nobj: {json_rule({"const": True})}')
    assert follow(grammar, list(b"<true")) == {ord(">")}


@pytest.mark.parametrize(
    "grammar",
    [
        regex_grammar("("),
        regex_grammar(".*" * 3000),
        lark_grammar("start: nothing"),
        lark_grammar(""),
        json_grammar({"type": "frob"}),
        json_grammar({"$ref": "http://example.org/schema"}),
        json_grammar({"type": "integer", "minimum": 3, "maximum": 2}),
        json_grammar({"type": "string", "allOf": [{"pattern": f".*x{i}.*"} for i in range(30)]}),
        json_grammar({"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for j in range(9)]} for i in range(9)]}),
    ],
    ids=lambda grammar: grammar[:50],
)
def test_refused(grammar: str) -> None:
    with pytest.raises(GrammarError) as caught:
        grammars().compile(grammar)
    assert len(str(caught.value)) <= 300


def test_token_out_of_place_shows() -> None:
    made = grammars().start(regex_grammar("a"), [ord("b")])
    with pytest.raises(GrammarError):
        allowed(made)


def test_model_without_an_end() -> None:
    with pytest.raises(GrammarError, match="ends an answer"):
        Grammars(Bytes(), ()).compile(regex_grammar("a"))


def test_works_on_after_one_that_takes_for_ever() -> None:
    made = grammars()
    endless = json_grammar({"type": "string", "allOf": [{"pattern": f".*x{i}.*"} for i in range(40)]})
    with pytest.raises(GrammarError, match=r"takes more than|memory"):
        made.compile(endless)
    made.compile(regex_grammar("a"))
    assert allowed(made.start(regex_grammar("a"))) == {ord("a")}
