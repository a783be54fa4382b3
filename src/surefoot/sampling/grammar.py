"""Answers that keep to a grammar: of the tokens, only those that can still lead to a whole answer are drawn.

What is allowed depends on the grammar and the answer's tokens alone, so that a sample that comes back after it had to
give way goes on as if it had never been away.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper, regex_to_lark

from surefoot.ops.arrays import F32
from surefoot.sampling.grammar_checker import limits
from surefoot.sampling.grammar_trial import Trial

MOST_GRAMMARS = 64
MARK = b"\x01"  # a byte that no merge knows, so that it is a token of its own
# No free white space: a model that may go on with it for ever, sometimes does.
JSON_STYLE = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}


class GrammarError(ValueError):
    """The grammar cannot be used; the message says why."""


class Vocabulary(Protocol):
    """What a grammar must know of the tokenizer."""

    @property
    def pieces(self) -> Sequence[bytes]: ...
    @property
    def special(self) -> Collection[int]: ...
    def encode(self, text: str, *, add_special: bool = ..., parse_special: bool = ...) -> list[int]: ...


class Constraint:
    """One answer's place in its grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def apply(self, logits: F32) -> None:
        """Tokens that are not allowed next get -infinity."""
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise GrammarError(_short(self._matcher.get_error()))
        allowed = np.unpackbits(mask, count=min(len(logits), 8 * len(mask)), bitorder="little")
        logits[: len(allowed)][allowed == 0] = -np.inf
        logits[len(allowed) :] = -np.inf

    def copy(self) -> "Constraint":
        return Constraint(self._matcher.deep_copy())

    def forced(self) -> tuple[int, ...]:
        """Tokens to which the grammar leaves no choice."""
        return () if self._matcher.is_stopped() else tuple(self._matcher.compute_ff_tokens())

    def accept(self, token: int) -> None:
        """It was drawn. One that was not allowed shows when `apply` is next called."""
        self._matcher.consume_token(token)


class Grammars:
    """Compiled grammars of one tokenizer, those used last. Safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary, ends: Collection[int]) -> None:
        """ends: tokens that end an answer, once the grammar allows it."""
        self._vocabulary = vocabulary
        self._ends = sorted(ends)
        self._tokenizer: LLTokenizer | None = None  # made when first needed: it takes a while
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()  # of what is compiled
        self._making = threading.Lock()
        self._trial = Trial(vocabulary.pieces)

    def compile(self, grammar: str) -> None:
        """So that `start` finds it. Raises GrammarError, also if that takes too long or too much memory."""
        if not self._ends:
            raise GrammarError("this model has no token that ends an answer, which a grammar needs")
        with self._lock:
            is_known = grammar in self._compiled
        if not is_known and (complaint := self._trial.complaint(grammar)):
            raise GrammarError(_short(complaint))
        self._find(grammar)

    def start(self, grammar: str, tokens: Sequence[int] = ()) -> Constraint:
        """An answer that has these tokens already."""
        constraint = Constraint(self._find(grammar).deep_copy())
        for token in tokens:
            constraint.accept(token)
        return constraint

    def _find(self, grammar: str) -> LLMatcher:
        with self._lock:
            if grammar in self._compiled:
                self._compiled.move_to_end(grammar)
                return self._compiled[grammar]
        matcher = self._make(grammar)
        with self._lock:
            self._compiled[grammar] = matcher
            if len(self._compiled) > MOST_GRAMMARS:
                self._compiled.popitem(last=False)
        return matcher

    def _make(self, grammar: str) -> LLMatcher:
        """One at a time, and holding up nobody who uses another."""
        with self._making:
            matcher = LLMatcher(self._load(), grammar, log_level=0, limits=limits())
        if matcher.is_error():
            raise GrammarError(_short(matcher.get_error()))
        return matcher

    def _load(self) -> LLTokenizer:
        if self._tokenizer is None:
            wrapped = TokenizerWrapper(_Words(self._vocabulary, self._ends[0]))
            self._tokenizer = LLTokenizer(wrapped, n_vocab=len(self._vocabulary.pieces), eos_token=self._ends)
        return self._tokenizer


class _Words:
    """The vocabulary under the names that llguidance reads."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, end: int) -> None:
        self.eos_token_id = end
        self.tokens = list(vocabulary.pieces)
        self.special_token_ids = sorted(vocabulary.special)
        self._vocabulary = vocabulary

    def __call__(self, text: bytes) -> list[int]:
        """The text's own tokens. Some encoders put a space before a text: there they are found behind a mark."""
        tokens = self._encode(text.decode())
        if b"".join(self.tokens[token] for token in tokens) == text:
            return tokens
        marked = self._encode(MARK.decode() + text.decode())
        pieces = [self.tokens[token] for token in marked]
        return marked[pieces.index(MARK) + 1 :] if MARK in pieces else tokens

    def _encode(self, text: str) -> list[int]:
        return self._vocabulary.encode(text, add_special=False, parse_special=False)


def json_grammar(schema: Mapping[str, Any]) -> str:
    """Any JSON that fits the schema, written as json.dumps writes it."""
    try:
        return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=JSON_STYLE)  # type: ignore[arg-type]
    except ValueError as error:
        raise GrammarError(_short(str(error))) from error


def regex_grammar(regex: str) -> str:
    return LLMatcher.grammar_from_regex(regex)


def lark_grammar(text: str) -> str:
    return LLMatcher.grammar_from_lark(text)


def json_rule(schema: Mapping[str, Any]) -> str:
    """A rule's right side in Lark for JSON that fits the schema."""
    return "%json " + json.dumps({**schema, "x-guidance": JSON_STYLE})


def regex_rule(regex: str) -> str:
    """A rule's right side in Lark for text that fits the whole regex."""
    return f"/{regex_to_lark(regex)}/"


def _short(error: str) -> str:
    return " ".join(error.split())[:300] or "it leads nowhere"
