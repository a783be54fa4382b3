"""Which steps are noted of a traced request."""

from collections.abc import Sequence

from surefoot.core import Chunk, SampleKey
from surefoot.engine import Event
from surefoot.server.tracing.steps import MOST_CHUNKS, StepLog, StepTime, TracedChunk, Watchers

KEY = SampleKey("traced", 0)


def chunk(start: int, num_tokens: int, num_logits: int, key: SampleKey = KEY) -> Chunk:
    return Chunk(key, start, (7,) * num_tokens, (), num_logits, (0,))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_chunks_of_the_prompt_then_drafts() -> None:
    clock = Clock()
    log = StepLog(clock)
    log.open(["traced"])
    steps: list[tuple[float, int, Sequence[Event], Chunk]] = [
        (1.0, 40, (), chunk(0, 32, 0)),
        (2.0, 9, (Event(KEY, (5,)),), chunk(32, 8, 1)),
        (3.0, 1, (Event(KEY, (5,)),), chunk(40, 1, 1)),
        (4.0, 5, (Event(KEY, (5, 6)),), chunk(41, 5, 5)),
        (5.0, 5, (Event(KEY, (5,)),), chunk(43, 5, 5)),
    ]
    for clock.now, num_tokens, events, part in steps:
        log.on_step(num_tokens, 500.0, events, [chunk(0, 3, 0, SampleKey("other", 0)), part])
    taken = log.take(["traced", "other"])
    assert taken.keys() == {"traced"}
    assert taken["traced"].prefills == [
        TracedChunk(StepTime(0.5, 1.0), 0, 32, 40), TracedChunk(StepTime(1.5, 2.0), 32, 8, 9),
    ]  # fmt: skip
    assert taken["traced"].drafting == StepTime(3.5, 5.0)


def test_a_prompt_of_one_token_is_a_chunk_too() -> None:
    log = StepLog(Clock())
    log.open(["traced"])
    log.on_step(1, 1.0, (Event(KEY, (5,)),), [chunk(0, 1, 1)])
    log.on_step(1, 1.0, (Event(KEY, (5,)),), [chunk(1, 1, 1)])
    assert [part.position for part in log.take(["traced"])["traced"].prefills] == [0]


def test_nothing_is_kept_of_requests_that_were_taken() -> None:
    """A request that was abandoned may still be in the step under way."""
    log = StepLog(Clock())
    log.open(["traced"])
    log.take(["traced"])
    log.on_step(1, 1.0, (), [chunk(0, 1, 0)])
    assert log.take(["traced"]) == {}


def test_chunks_are_bounded() -> None:
    log = StepLog(Clock())
    log.open(["traced"])
    for number in range(MOST_CHUNKS + 5):
        log.on_step(1, 1.0, (), [chunk(number, 1, 0)])
    assert len(log.take(["traced"])["traced"].prefills) == MOST_CHUNKS


def test_every_watcher_sees_every_step() -> None:
    logs = (StepLog(Clock()), StepLog(Clock()))
    for log in logs:
        log.open(["traced"])
    Watchers(logs).on_step(1, 1.0, (), [chunk(0, 1, 0)])
    assert [len(log.take(["traced"])["traced"].prefills) for log in logs] == [1, 1]
