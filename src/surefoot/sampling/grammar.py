"""Constrains answers to a grammar: only tokens that can still lead to a complete answer may be sampled.

What is allowed depends on the grammar and the answer's tokens alone, so that a sample that was preempted resumes as if
it had never been away.
"""

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer, TokenizerWrapper, regex_to_lark
from llguidance.gbnf_to_lark import gbnf_to_lark
from numpy.typing import NDArray

from surefoot.ops.arrays import F32
from surefoot.sampling.cpu_clock import measured
from surefoot.sampling.grammar_checker import FORCES_TOO_MUCH, check_forced, limits
from surefoot.sampling.grammar_trial import Trial
from surefoot.sampling.mask_worker import MaskWorker, WorkerTools

MOST_GRAMMARS = 64  # compiled grammars that are cached
# Seconds of work beyond which an answer's grammar counts as slow: at first, and more with each token. Ordinary grammars
# take a millisecond per token (docs/design/sampling.md). No clock ends an answer: counts of work do.
SLOW_S = 0.1
SLOW_TOKEN_S = 0.002
PATIENCE_S = 1.0  # between two checks of a stuck worker
QUICK_S = 0.002  # a mask that took less counts as quick
TOO_LARGE = (
    "it is too large or too ambiguous: make it simpler, with few ways to read one text, long words rather than single "
    "letters, and lists as `list: list item`"
)
LEXER_ERROR = "lexer error"  # in llguidance's message when the lexer, which answers share, reaches a limit
ITS_LIMITS = ("Too many items", "Current row has", LEXER_ERROR)  # llguidance's messages about its limits
MARK = b"\x01"  # a byte in no merge, so it is always a token of its own
# White space is fixed: a model that may write it without end sometimes does.
JSON_STYLE = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
MAX_GBNF_CHARACTERS = 16 << 10  # the converter is written in Python: this many take up to 0.1 s


class GrammarError(ValueError):
    """The grammar cannot be used; the message says why."""


class GrammarTimeout(GrammarError):
    """A clock of this machine has ended the work, so that the same request may succeed elsewhere or later."""


class GrammarVocabulary(Protocol):
    """What a grammar needs of the tokenizer."""

    @property
    def pieces(self) -> Sequence[bytes]: ...
    @property
    def special(self) -> Collection[int]: ...
    def encode(self, text: str, *, add_special: bool = ..., parse_special: bool = ...) -> list[int]: ...


@dataclass
class Spending:
    """CPU time that an answer's grammar has taken. It decides who waits for whom, never what an answer says."""

    spent_s: float = 0.0  # so far
    num_tokens: int = 0  # of the answer
    is_quick: bool = False  # whether the last mask was quick

    @property
    def is_slow(self) -> bool:
        return self.spent_s > SLOW_S + SLOW_TOKEN_S * self.num_tokens


class Constraint:
    """The state of one answer in its grammar.

    At rest it belongs to its owner's thread. With work to do (to consume tokens and compute which may come next) it
    belongs to the worker. `begin` and `accept` start work; `wait` waits for its end.

    Answers with the same grammar share a lexer, which grows with what they write. Where it reaches its limit, an answer
    goes on with a new lexer, made by `renewed`, from its first token. It fails where a new lexer does not get beyond
    its text so far: by its own text, whoever used up the lexer before.
    """

    def __init__(
        self, worker: MaskWorker, spending: Spending, renewed: Callable[[], LLMatcher], tokens: Sequence[int] = ()
    ) -> None:
        self._worker, self._spending, self._renewed = worker, spending, renewed
        self._matcher: LLMatcher | None = None
        self._is_new = False  # the lexer, which has made no mask yet
        self._tokens = deque(tokens)  # that the matcher has yet to take
        self._taken: list[int] = []
        self._forbidden: NDArray[np.bool_] | None = None
        self._forced: tuple[int, ...] = ()
        self._is_asked_for_forced = self._is_closed = False
        self._is_awaited = True  # by a step that has nothing else to do
        self._error: GrammarError | None = None
        self._at_rest = threading.Event()

    # ---- the owner's side ----

    def begin(self, matcher: LLMatcher) -> None:
        """Starts the work with a matcher at the start of the grammar, which belongs to this answer alone."""
        self._matcher = matcher
        self._spending.num_tokens += len(self._tokens)
        self._worker.submit(self)

    def wait(self, seconds: float | None = None) -> bool:
        """Waits at most `seconds`, and returns whether it is at rest. Raises GrammarError if it has failed."""
        self._is_awaited = seconds != 0
        is_ready = self._at_rest.wait(seconds)
        if not is_ready:
            self._worker.replace_stuck()
            _check_worker(self._worker)
        if self._error is not None:
            raise self._error
        return is_ready

    def apply(self, logits: F32) -> None:
        """Sets the logits of tokens that are not allowed next to -infinity."""
        while not self.wait(PATIENCE_S):
            pass
        assert self._forbidden is not None
        count = min(len(logits), len(self._forbidden))
        np.putmask(logits[:count], self._forbidden[:count], -np.inf)
        logits[count:] = -np.inf

    def copy(self) -> "Constraint":
        """A copy, at rest, as this must be. Both count as one answer's work."""
        assert self._matcher is not None
        other = Constraint(self._worker, self._spending, self._renewed)
        other._matcher, other._forbidden = self._matcher.deep_copy(), self._forbidden
        other._taken = self._taken.copy()
        other._at_rest.set()
        return other

    def settle(self, seconds: float) -> None:
        """Waits for the end of its work, at most `seconds`."""
        self._at_rest.wait(max(0.0, seconds))

    def forced(self) -> tuple[int, ...]:
        """Tokens that the grammar leaves no choice about, as far as known. They are computed from the first call on."""
        self._is_asked_for_forced = True
        return self._forced if self._at_rest.is_set() else ()

    def accept(self, *tokens: int) -> None:
        """Consumes sampled tokens. A token that was not allowed raises at the next `wait`."""
        if not tokens:
            return
        self._at_rest.wait()  # returns at once, except for callers that never ask what is allowed
        if self._error is not None:
            return
        self._at_rest.clear()
        self._tokens.extend(tokens)
        self._spending.num_tokens += len(tokens)
        self._worker.submit(self)

    def close(self) -> None:
        """Drops work that is left: the answer is over."""
        self._is_closed = True

    # ---- the worker's side ----

    @property
    def spent_s(self) -> float:
        return self._spending.spent_s

    @property
    def is_slow(self) -> bool:
        """Whether its masks cost far more than those of ordinary grammars."""
        return self._spending.is_slow

    @property
    def yields(self) -> bool:
        return self.is_slow and not self._is_awaited and not self._is_closed

    def advance(self, tools: WorkerTools) -> bool:
        if self._is_closed:
            return False
        try:
            return self._advance(tools)
        except Exception as error:
            self.end(GrammarError(_short(str(error))))
            return False

    def fail(self, why: str) -> None:
        self.end(GrammarTimeout(why))

    def end(self, error: GrammarError) -> None:
        """The answer ends with this error."""
        self._error = error
        self._at_rest.set()

    def _advance(self, tools: WorkerTools) -> bool:
        assert self._matcher is not None
        began = tools.cpu_seconds()
        if self._tokens:
            self._consume(self._matcher, self._tokens.popleft(), tools)
        else:
            self._compute_mask(self._matcher)
        cost_s = tools.cpu_seconds() - began
        self._spending.spent_s += cost_s
        self._spending.is_quick = self._forbidden is not None and cost_s < QUICK_S
        if self._matcher.is_error():
            self._recover(self._matcher.get_error())
        if self._forbidden is not None:
            self._is_new = False
            self._at_rest.set()
        return self._forbidden is None

    def _recover(self, error: str) -> None:
        """Starts again with a new lexer if this one is used up. Raises GrammarError if a new one would be too."""
        if LEXER_ERROR not in error or self._is_new:
            raise GrammarError(_plain(error))
        self._matcher, self._is_new = self._renewed(), True
        self._tokens.extendleft(reversed(self._taken))
        self._taken, self._forbidden = [], None

    def _consume(self, matcher: LLMatcher, token: int, tools: WorkerTools) -> None:
        self._forbidden, self._forced = None, ()
        self._taken.append(token)
        if self._spending.is_quick:  # then consuming is quick too: the mask had to try the token
            matcher.consume_token(token)
        else:
            tools.consume(matcher, token)

    def _compute_mask(self, matcher: LLMatcher) -> None:
        """Computes which tokens may come next."""
        mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        forbidden = np.unpackbits(~mask, bitorder="little").view(np.bool_)
        if self._is_asked_for_forced and not matcher.is_stopped() and len(forbidden) - forbidden.sum() == 1:
            self._forced = tuple(matcher.compute_ff_tokens())
        self._forbidden = forbidden


class Grammars:
    """A cache of compiled grammars for one tokenizer. Thread-safe."""

    def __init__(self, vocabulary: GrammarVocabulary, ends: Collection[int]) -> None:
        """`ends` are the tokens that end an answer once the grammar allows it."""
        self._vocabulary = vocabulary
        self._ends = sorted(ends)
        self._tokenizer: LLTokenizer | None = None  # made on first use: it takes a while
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._worker = MaskWorker(self._make_tools)
        self._lock = threading.Lock()  # of `_compiled`
        self._making = threading.Lock()  # held while a grammar is compiled
        self._trial = Trial(vocabulary.pieces)

    def compile(self, grammar: str) -> None:
        """Compiles the grammar for `start`. Raises GrammarError, also if that takes too long or too much memory."""
        if not self._ends:
            raise GrammarError("this model has no token that ends an answer, which a grammar needs")
        _check_worker(self._worker)
        if self._known(grammar) is None and (complaint := self._trial.complaint(grammar)):
            raise GrammarError(_plain(complaint))
        self._find(grammar)

    def start(self, grammar: str, tokens: Sequence[int] = ()) -> Constraint:
        """The constraint of an answer that has these tokens already. Returns at once; errors are raised by `wait`."""
        constraint = Constraint(self._worker, Spending(), lambda: self._renew(grammar), tokens)
        if (matcher := self._known(grammar)) is not None:
            constraint.begin(matcher.deep_copy())
        else:  # evicted
            threading.Thread(target=self._begin, args=(constraint, grammar), daemon=True).start()
        return constraint

    def _begin(self, constraint: Constraint, grammar: str) -> None:
        try:
            constraint.begin(self._find(grammar).deep_copy())
        except Exception as error:
            constraint.end(GrammarError(_short(str(error))))

    def _renew(self, grammar: str) -> LLMatcher:
        """A matcher with a lexer of its own. The used-up one leaves the cache, so that new answers share another."""
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
        """Compiles one grammar at a time, without blocking the use of others."""
        with self._making:
            matcher = LLMatcher(self._load(), grammar, log_level=0, limits=limits())
        if matcher.is_error():
            raise GrammarError(_plain(matcher.get_error()))
        return matcher

    def _make_tools(self) -> WorkerTools:
        """llguidance releases Python's lock only if two matchers consume tokens at once, so a finished matcher goes
        along."""
        executor, cpu_seconds = measured(lambda: LLExecutor(num_threads=1))
        end = self._ends[0]
        ended = LLMatcher(self._load(), regex_grammar("a?"), log_level=0)
        ended.consume_token(end)
        return WorkerTools(
            lambda matcher, token: executor.consume_token_par([(matcher, token), (ended, end)]), cpu_seconds
        )

    def _load(self) -> LLTokenizer:
        if self._tokenizer is None:
            wrapped = TokenizerWrapper(_TokenizerAdapter(self._vocabulary, self._ends[0]))
            self._tokenizer = LLTokenizer(wrapped, n_vocab=len(self._vocabulary.pieces), eos_token=self._ends)
        return self._tokenizer


class _TokenizerAdapter:
    """The vocabulary under the names that llguidance reads."""

    bos_token_id = None

    def __init__(self, vocabulary: GrammarVocabulary, end: int) -> None:
        self.eos_token_id = end
        self.tokens = list(vocabulary.pieces)
        self.special_token_ids = sorted(vocabulary.special)
        self._vocabulary = vocabulary

    def __call__(self, text: bytes) -> list[int]:
        """The tokens of the text. Some encoders put a space before a text: for them, a mark is put before it and cut
        off."""
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
    """A grammar for JSON that matches the schema, formatted as by json.dumps."""
    try:
        return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=JSON_STYLE)  # type: ignore[arg-type]
    except ValueError as error:
        raise GrammarError(_short(str(error))) from error


def regex_grammar(regex: str) -> str:
    return LLMatcher.grammar_from_regex(regex)


def lark_grammar(text: str) -> str:
    return LLMatcher.grammar_from_lark(text)


def json_rule(schema: Mapping[str, Any]) -> str:
    """The right side of a Lark rule for JSON that matches the schema."""
    return "%json " + json.dumps({**schema, "x-guidance": JSON_STYLE})


def regex_rule(regex: str) -> str:
    """The right side of a Lark rule for text that matches the whole regex."""
    return f"/{regex_to_lark(regex)}/"


def _check_worker(worker: MaskWorker) -> None:
    if worker.is_lost:
        raise GrammarTimeout("too many grammars take too long at the moment: send the request again later")


def _plain(error: str) -> str:
    """llguidance's message, or our own if a limit was reached."""
    if FORCES_TOO_MUCH in error:
        return FORCES_TOO_MUCH
    return TOO_LARGE if any(words in error for words in ITS_LIMITS) else _short(error)


def _short(error: str) -> str:
    return " ".join(error.split())[:300] or "it leads nowhere"


def lark_of(gbnf: str) -> str:
    """The grammar in Lark's notation. Raises GrammarError if it is not valid GBNF."""
    if len(gbnf) > MAX_GBNF_CHARACTERS:
        raise GrammarError(f"a GBNF grammar has at most {MAX_GBNF_CHARACTERS} characters: make it smaller")
    try:
        return gbnf_to_lark(gbnf)
    except Exception as error:  # the converter raises plain Exception, and RecursionError for deep nesting
        raise GrammarError(f"the grammar cannot be read as GBNF: {str(error)[:200]}") from error
