"""Answers that keep to a grammar: of the tokens, only those that can still lead to a whole answer are drawn.

What is allowed depends on the grammar and the answer's tokens alone, so that a sample that comes back after it had to
give way goes on as if it had never been away.
"""

import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer, TokenizerWrapper, regex_to_lark
from numpy.typing import NDArray

from surefoot.ops.arrays import F32
from surefoot.sampling.grammar_checker import FORCES_TOO_MUCH, check_forced, limits
from surefoot.sampling.grammar_trial import Trial
from surefoot.sampling.mask_worker import MaskWorker, Take

MOST_GRAMMARS = 64
# Seconds of work that an answer's grammar may cost, and those that come with each token. Ordinary ones take a
# thousandth of a second a token (docs/design/sampling.md).
BURST_S = 1.0
TOKEN_S = 0.02
PATIENCE_S = 1.0
QUICK_S = 0.002
TAKES_TOO_LONG = "it takes too long: make it simpler"
TOO_LARGE = (
    "it is too large or too ambiguous: make it simpler, with few ways to read one text, long words rather than single "
    "letters, and lists as `list: list item`"
)
LEXER_ERROR = "lexer error"  # how llguidance begins to tell of its limits: of the lexer's, which answers share
ITS_LIMITS = ("Too many items", "Current row has", LEXER_ERROR)
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


@dataclass
class Spending:
    """Seconds of work that an answer's grammar has cost, and that it may cost; it may cost more with each token."""

    spent_s: float = 0.0
    allowed_s: float = BURST_S
    is_quick: bool = False  # whether the last mask was

    @property
    def is_over(self) -> bool:
        return self.spent_s > self.allowed_s


class Constraint:
    """One answer's place in its grammar.

    It is at rest, and then its owner's thread's, or has work to do, and then the worker's: to take tokens and find out
    which may come next. The work begins with `begin` and `accept`; `wait` waits for its end.

    Answers with the same grammar share a lexer that grows with what they write. Once it is as large as it may be, each
    goes on with one of its own: an answer fails only by what it writes itself. renewed: makes that one.
    """

    def __init__(
        self, worker: MaskWorker, spending: Spending, renewed: Callable[[], LLMatcher], tokens: Sequence[int] = ()
    ) -> None:
        self._worker, self._spending, self._renewed = worker, spending, renewed
        self._matcher: LLMatcher | None = None
        self._has_own_lexer = False
        self._tokens = deque(tokens)  # that the matcher has yet to take
        self._taken: list[int] = []
        self._forbidden: NDArray[np.bool_] | None = None
        self._forced: tuple[int, ...] = ()
        self._is_asked_for_forced = self._is_closed = False
        self._error = ""
        self._at_rest = threading.Event()

    # ---- the owner's side ----

    def begin(self, matcher: LLMatcher) -> None:
        """matcher: at the beginning of the grammar, for this answer alone."""
        self._matcher = matcher
        self._spending.allowed_s += TOKEN_S * len(self._tokens)
        self._worker.submit(self)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is at rest, at most so many seconds from now. Raises GrammarError if it has failed."""
        is_ready = self._at_rest.wait(seconds)
        if not is_ready:
            self._worker.replace_stuck()
            _check_worker(self._worker)
        if self._error:
            raise GrammarError(self._error)
        return is_ready

    def apply(self, logits: F32) -> None:
        """Tokens that are not allowed next get -infinity."""
        while not self.wait(PATIENCE_S):
            pass
        assert self._forbidden is not None
        count = min(len(logits), len(self._forbidden))
        np.putmask(logits[:count], self._forbidden[:count], -np.inf)
        logits[count:] = -np.inf

    def copy(self) -> "Constraint":
        """At rest, as this must be. What the copy costs counts as this answer's."""
        assert self._matcher is not None
        other = Constraint(self._worker, self._spending, self._renewed)
        other._matcher, other._forbidden = self._matcher.deep_copy(), self._forbidden
        other._taken, other._has_own_lexer = self._taken.copy(), self._has_own_lexer
        other._at_rest.set()
        return other

    def settle(self, seconds: float) -> None:
        """Wait for the end of its work, at most so long."""
        self._at_rest.wait(max(0.0, seconds))

    def forced(self) -> tuple[int, ...]:
        """Tokens to which the grammar leaves no choice, if that is known. It is found out once it was asked for."""
        self._is_asked_for_forced = True
        return self._forced if self._at_rest.is_set() else ()

    def accept(self, *tokens: int) -> None:
        """They were drawn. One that was not allowed shows when the constraint is next waited for."""
        if not tokens:
            return
        self._at_rest.wait()  # it is, but for callers who do not ask what is allowed
        if self._error:
            return
        self._at_rest.clear()
        self._tokens.extend(tokens)
        self._spending.allowed_s += TOKEN_S * len(tokens)
        self._worker.submit(self)

    def close(self) -> None:
        """Nobody needs it any more."""
        self._is_closed = True

    # ---- the worker's side ----

    @property
    def spent_s(self) -> float:
        return self._spending.spent_s

    def advance(self, take: Take) -> bool:
        if self._is_closed:
            return False
        try:
            return self._advance(take)
        except Exception as error:
            self.fail(str(error))
            return False

    def fail(self, why: str) -> None:
        self._error = _short(why)
        self._at_rest.set()

    def _advance(self, take: Take) -> bool:
        assert self._matcher is not None
        if self._spending.is_over:
            raise GrammarError(TAKES_TOO_LONG)
        if self._tokens:
            self._take(self._matcher, self._tokens.popleft(), take)
        else:
            self._look(self._matcher)
        if self._matcher.is_error():
            self._recover(self._matcher.get_error())
        if self._forbidden is not None:
            self._at_rest.set()
        return self._forbidden is None

    def _recover(self, error: str) -> None:
        """Begin again where others have used up the lexer. Raises GrammarError if it is this answer's own doing."""
        if LEXER_ERROR not in error or self._has_own_lexer:
            raise GrammarError(_plain(error))
        self._matcher, self._has_own_lexer = self._renewed(), True
        self._tokens.extendleft(reversed(self._taken))
        self._taken, self._forbidden = [], None
        self._spending.allowed_s += BURST_S + TOKEN_S * len(self._tokens)

    def _take(self, matcher: LLMatcher, token: int, take: Take) -> None:
        self._forbidden, self._forced = None, ()
        self._taken.append(token)
        began = time.perf_counter()
        if self._spending.is_quick:  # then so is this: the mask had to look at the token, too
            matcher.consume_token(token)
        else:
            take(matcher, token)
        self._spending.spent_s += time.perf_counter() - began

    def _look(self, matcher: LLMatcher) -> None:
        """Which tokens may come next. Counted is the thread's own time: how busy the machine is does not matter."""
        began = time.thread_time()
        mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        forbidden = np.unpackbits(~mask, bitorder="little").view(np.bool_)
        if self._is_asked_for_forced and not matcher.is_stopped() and len(forbidden) - forbidden.sum() == 1:
            self._forced = tuple(matcher.compute_ff_tokens())
        cost_s = time.thread_time() - began
        self._spending.spent_s += cost_s
        self._spending.is_quick = cost_s < QUICK_S
        self._forbidden = forbidden


class Grammars:
    """Compiled grammars of one tokenizer, those used last. Safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary, ends: Collection[int]) -> None:
        """ends: tokens that end an answer, once the grammar allows it."""
        self._vocabulary = vocabulary
        self._ends = sorted(ends)
        self._tokenizer: LLTokenizer | None = None  # made when first needed: it takes a while
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._worker = MaskWorker(self._make_take)
        self._lock = threading.Lock()  # of what is compiled
        self._making = threading.Lock()
        self._trial = Trial(vocabulary.pieces)

    def compile(self, grammar: str) -> None:
        """So that `start` finds it. Raises GrammarError, also if that takes too long or too much memory."""
        if not self._ends:
            raise GrammarError("this model has no token that ends an answer, which a grammar needs")
        _check_worker(self._worker)
        if self._known(grammar) is None and (complaint := self._trial.complaint(grammar)):
            raise GrammarError(_plain(complaint))
        self._find(grammar)

    def start(self, grammar: str, tokens: Sequence[int] = ()) -> Constraint:
        """An answer that has these tokens already. Returns at once; what goes wrong shows when it is waited for."""
        constraint = Constraint(self._worker, Spending(), lambda: self._renew(grammar), tokens)
        if (matcher := self._known(grammar)) is not None:
            constraint.begin(matcher.deep_copy())
        else:  # others have driven it out
            threading.Thread(target=self._begin, args=(constraint, grammar), daemon=True).start()
        return constraint

    def _begin(self, constraint: Constraint, grammar: str) -> None:
        try:
            constraint.begin(self._find(grammar).deep_copy())
        except Exception as error:
            constraint.fail(str(error))

    def _renew(self, grammar: str) -> LLMatcher:
        """With a lexer of its own. The one that was used up goes: new answers share another."""
        with self._lock:
            self._compiled.pop(grammar, None)
        return self._make(grammar)

    def _known(self, grammar: str) -> LLMatcher | None:
        with self._lock:
            if grammar in self._compiled:
                self._compiled.move_to_end(grammar)
            return self._compiled.get(grammar)

    def _find(self, grammar: str) -> LLMatcher:
        if (known := self._known(grammar)) is not None:
            return known
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
            raise GrammarError(_plain(matcher.get_error()))
        return matcher

    def _make_take(self) -> Take:
        """llguidance lets go of Python's lock only where two matchers take tokens at once: one that has ended helps."""
        native, end = LLExecutor(num_threads=1), self._ends[0]
        ended = LLMatcher(self._load(), regex_grammar("a?"), log_level=0)
        ended.consume_token(end)

        def take(matcher: LLMatcher, token: int) -> None:
            native.consume_token_par([(matcher, token), (ended, end)])

        return take

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
        check_forced(text)
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


def _check_worker(worker: MaskWorker) -> None:
    if worker.is_lost:
        raise GrammarError("too many grammars take too long at the moment: send the request again later")


def _plain(error: str) -> str:
    """llguidance's own words, but for its limits."""
    if FORCES_TOO_MUCH in error:
        return FORCES_TOO_MUCH
    return TOO_LARGE if any(words in error for words in ITS_LIMITS) else _short(error)


def _short(error: str) -> str:
    return " ".join(error.split())[:300] or "it leads nowhere"
