"""Point 3.1 of the attack's list: what a grammar may cost. Over a corpus of hostile and one of ordinary grammars."""

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from llguidance import LLMatcher

from surefoot.sampling import GrammarError, Grammars, GrammarTimeout, grammar_checker
from surefoot.sampling.grammar import SLOW_S, Constraint, Spending, lark_grammar, regex_grammar
from surefoot.sampling.grammar_trial import Trial
from surefoot.sampling.mask_worker import MOST_STUCK, MaskWorker, WorkerTools
from surefoot.server.service import _failure
from surefoot.text import Tokenizer, tokenizer_from_gguf
from surefoot.weights import GgufFile
from tests.sampling import grammar_corpus
from tests.sampling.grammar import Bytes
from tests.smollm2 import find_file

NUM_TOKENS = 25
AMBIGUOUS = lark_grammar('start: e\ne: e e e e | e e e | e e | e | "a" |')


@functools.cache
def tokenizer() -> Tokenizer:
    return tokenizer_from_gguf(GgufFile(find_file()).metadata)


@functools.cache
def grammars() -> Grammars:
    return Grammars(tokenizer(), tokenizer().ids.ends)


def allowed(constraint: Constraint) -> list[int]:
    logits = np.ones(len(tokenizer().pieces), np.float32)
    constraint.apply(logits)
    return np.flatnonzero(logits == 1).tolist()


def walk(constraint: Constraint, num_tokens: int, seed: int = 0) -> Iterator[list[int]]:
    """What is allowed at each place of a text with long tokens, which a grammar's single letters have most work with.
    Raises GrammarError."""
    rng, pieces = np.random.default_rng(seed), tokenizer().pieces
    for _ in range(num_tokens):
        found = allowed(constraint)
        yield found
        going_on = [token for token in found if token not in tokenizer().ids.ends]
        if not going_on:
            return
        constraint.accept(max(rng.choice(going_on, 20).tolist(), key=lambda token: len(pieces[token])))


@pytest.mark.parametrize("name", grammar_corpus.hostile())
def test_a_hostile_grammar_ends_itself_or_goes_on(name: str) -> None:
    """It is refused, ends by its counts of work, or costs so little that it goes on."""
    text, told = grammar_corpus.hostile()[name], ""
    try:
        grammars().compile(text)
        for _ in walk(grammars().start(text), NUM_TOKENS):
            pass
    except GrammarError as error:
        told = str(error)
    assert len(told) <= 300
    assert "limit" not in told, "llguidance's own words tell of its inside"


def test_the_corpus_is_hostile() -> None:
    """Without limits most of the ambiguous ones would go on: else the test above shows nothing."""
    with pytest.raises(GrammarError, match="too ambiguous"):
        for _ in walk(grammars().start(grammar_corpus.hostile()["lark: the issue's own"]), 1000):
            pass


@pytest.mark.parametrize("name", grammar_corpus.ordinary())
def test_an_ordinary_grammar_is_what_it_was(name: str) -> None:
    """Large ones too: the limits change nothing about what they allow."""
    text = grammar_corpus.ordinary()[name]
    grammars().compile(text)
    plain = LLMatcher(grammars()._load(), text, log_level=0)
    constraint, tokens = grammars().start(text), list[int]()
    constraint.accept = lambda token, accept=constraint.accept: (tokens.append(token), accept(token))  # type: ignore
    for found in walk(constraint, NUM_TOKENS):
        if tokens:
            assert plain.consume_token(tokens[-1])
        mask = np.unpackbits(np.frombuffer(plain.compute_bitmask(), np.uint8), bitorder="little")
        assert found == np.flatnonzero(mask).tolist()
    assert len(tokens) > 2


def letters_until_the_end(constraint: Constraint, letters: Sequence[int], num_taken: int = 0) -> tuple[int, str]:
    """How many of the letters an answer takes that has the first ones already, and why it ends."""
    logits = np.ones(257, np.float32)
    try:
        for letter in letters[num_taken:]:
            constraint.apply(logits)
            constraint.accept(letter)
            num_taken += 1
    except GrammarError as error:
        return num_taken, str(error)
    return num_taken, ""


@pytest.fixture(params=["items", "states"])
def ending(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[int]]:
    """A grammar and an answer that its counts of work end: the parser's or the lexer's."""
    if request.param == "items":
        return AMBIGUOUS, [ord("a")] * 200
    monkeypatch.setattr(grammar_checker, "LEXER_STATES", 100)
    return regex_grammar("(a|b)*a(a|b){14}"), np.random.default_rng(0).choice(list(b"ab"), 300).tolist()


def test_an_answer_ends_at_the_same_token_wherever_it_goes_on(ending: tuple[str, list[int]]) -> None:
    """Alone, in company that has used the lexer, resumed at any token, and as a copy (drafts are judged by copies)."""
    text, letters = ending
    num_taken, told = end = letters_until_the_end(Grammars(Bytes(), {256}).start(text), letters)
    assert 5 < num_taken < len(letters)
    assert "simpler" in told
    made = Grammars(Bytes(), {256})
    for number in (0, 1, num_taken // 2, num_taken - 1, num_taken):
        assert letters_until_the_end(made.start(text, letters[:number]), letters, number) == end
    resumed = made.start(text, letters[: num_taken // 2])
    assert resumed.wait(60)
    assert letters_until_the_end(resumed.copy(), letters, num_taken // 2) == end


def test_no_clock_ends_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is a thousand times slower ends it at the same token."""
    letters = [ord("a")] * 200
    made, slow = Grammars(Bytes(), {256}), Grammars(Bytes(), {256})
    tools, hours = slow._make_tools, itertools.count(step=3600)
    monkeypatch.setattr(slow._worker, "_make_tools", lambda: replace(tools(), cpu_seconds=lambda: float(next(hours))))
    slowly = slow.start(AMBIGUOUS)
    assert letters_until_the_end(slowly, letters) == letters_until_the_end(made.start(AMBIGUOUS), letters)
    assert slowly.is_slow


def test_a_failed_answer_takes_no_other_with_it() -> None:
    made = Grammars(Bytes(), {256})
    text = lark_grammar('start: "a" e\ne: e e | "a" | "b" | e e e |')
    good, bad = made.start(text), made.start(text, list(b"c"))
    with pytest.raises(GrammarError):
        bad.wait(60)
    assert good.wait(60)
    good.accept(ord("a"))
    assert good.wait(60)


def test_answers_fail_by_what_they_write_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers with one grammar share a lexer that grows with all that they write: here one of them fits, not two."""
    monkeypatch.setattr(grammar_checker, "LEXER_STATES", 200)
    text = regex_grammar("(a|b)*a(a|b){14}")

    def masks(made: Grammars, seed: int) -> list[list[int]]:
        rng, constraint, found = np.random.default_rng(seed), made.start(text), []
        for letter in rng.choice(list(b"ab"), 60).tolist():
            logits = np.ones(257, np.float32)
            constraint.apply(logits)
            found.append(np.flatnonzero(logits == 1).tolist())
            constraint.accept(letter)
        assert constraint.wait(60)
        return found

    alone = [masks(Grammars(Bytes(), {256}), seed) for seed in range(6)]
    together = Grammars(Bytes(), {256})
    assert [masks(together, seed) for seed in range(6)] == alone
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(lambda seed: masks(together, seed), range(6))) == alone


# ---- the worker ----


class Piecework:
    """A job of so many pieces, which do what they are told."""

    def __init__(
        self, spent_s: float, num_pieces: int, do: Callable[["Piecework"], object], yields: bool = False
    ) -> None:
        self.spent_s, self._left, self._do, self.yields = spent_s, num_pieces, do, yields
        self.ended = threading.Event()
        self.why = ""

    def advance(self, tools: WorkerTools) -> bool:
        self._do(self)
        self._left -= 1
        if not self._left:
            self.ended.set()
        return self._left > 0

    def fail(self, why: str) -> None:
        self.why = why
        self.ended.set()


def worker(stuck_s: float = 60.0) -> MaskWorker:
    return MaskWorker(lambda: WorkerTools(lambda matcher, token: None, time.thread_time), stuck_s)


def test_who_has_spent_least_goes_first() -> None:
    made, order, gate = worker(), list[float](), threading.Event()
    made.submit(first := Piecework(0.0, 1, lambda job: gate.wait(60)))
    others = [Piecework(spent, 1, lambda job: order.append(job.spent_s)) for spent in (3.0, 1.0, 2.0)]
    for job in others:
        made.submit(job)
    gate.set()
    assert all(job.ended.wait(60) for job in (first, *others))
    assert order == [1.0, 2.0, 3.0]


def test_who_yields_goes_last_and_still_ends() -> None:
    made, order, gate = worker(), list[float](), threading.Event()
    made.submit(first := Piecework(0.0, 1, lambda job: gate.wait(60)))
    others = [
        Piecework(spent, 2, lambda job: order.append(job.spent_s), yields)
        for spent, yields in ((1.0, True), (3.0, False), (2.0, True), (4.0, False))
    ]
    for job in others:
        made.submit(job)
    gate.set()
    assert all(job.ended.wait(60) for job in (first, *others))
    assert order == [3.0, 3.0, 4.0, 4.0, 1.0, 1.0, 2.0, 2.0]


def test_a_slow_grammar_yields_unless_a_step_waits_for_it() -> None:
    spending = Spending()
    constraint = Constraint(worker(), spending, lambda: pytest.fail("no lexer was used up"))
    constraint.wait(0.0)
    assert not constraint.yields, "it has cost nothing yet"
    spending.spent_s = 2 * SLOW_S
    assert constraint.yields
    constraint.wait(0.001)
    assert not constraint.yields
    constraint.wait(0.0)
    constraint.close()
    assert not constraint.yields, "nothing is left to do"


def test_a_stuck_piece_fails_its_job_and_no_other() -> None:
    made, gate = worker(stuck_s=0.0), threading.Event()
    stuck = [Piecework(0.0, 1, lambda job: gate.wait(60)) for _ in range(MOST_STUCK)]
    for job in stuck:
        assert not made.is_lost
        made.submit(job)
        while not job.ended.wait(0.01):
            made.replace_stuck()
        assert "too long" in job.why
    assert made.is_lost
    made.submit(last := Piecework(0.0, 1, lambda job: None))
    assert not last.ended.wait(0.05)
    gate.set()
    assert last.ended.wait(60), "a thread that came back makes room for another"
    assert not last.why


def test_a_lost_worker_refuses_grammars(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Grammars(Bytes(), {256})
    monkeypatch.setattr(MaskWorker, "is_lost", True)
    with pytest.raises(GrammarError, match="later"):
        made.compile(lark_grammar('start: "a"'))


def test_a_complaint_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    trial, asked = Trial(Bytes.pieces), list[str]()
    monkeypatch.setattr(Trial, "_ask", lambda trial, text: asked.append(text) or ("" if text == "good" else "bad"))
    for text in ("good", "one", "good", "one", "two", "one"):
        assert trial.complaint(text) == ("" if text == "good" else "bad")
    assert asked == ["good", "one", "good", "two"]


def test_an_end_by_a_clock_is_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the machine's: servers answer with status 503, not with a cut text or a request that is at fault."""
    made, gate = Grammars(Bytes(), {256}), threading.Event()
    tools = made._make_tools
    made._worker._stuck_s = 0.0
    whole = [tools()]  # kept: a thread that has ended has no clock
    stuck = replace(whole[0], consume=lambda matcher, token: gate.wait(60))
    monkeypatch.setattr(made._worker, "_make_tools", lambda: stuck)
    constraint = made.start(regex_grammar("[a-z]*"), list(b"ab"))
    with pytest.raises(GrammarTimeout, match="this machine"):
        constraint.apply(np.ones(257, np.float32))
    gate.set()
    assert _failure("GrammarTimeout: this machine").status == 503
    assert _failure("GrammarError: the grammar").status == 400
