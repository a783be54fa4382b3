"""Sessions own their blocks, refuse what cannot be, and give the same logits in any chunks."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.ops import Backend
from surefoot.runner import Session, SessionRunner, Work
from tests.models.tiny import make_model

PROMPT = [(7 * number) % 50 for number in range(40)]
FAMILIES = ("llama", "gemma3")  # the second has windows


@functools.cache
def runner(family: str) -> SessionRunner:
    backend = Backend(threads=1)
    return SessionRunner.make(backend, make_model(backend, family), num_tokens=160, max_sessions=4, block_size=16)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=10)
@given(chunks=st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_chunks_do_not_change_logits(family: str, chunks: list[int]) -> None:
    sessions = runner(family)
    whole, pieces = sessions.open(64), sessions.open(64)
    wanted = sessions.prefill(whole, PROMPT).copy()
    found = sessions.prefill(pieces, PROMPT, chunks)
    assert np.array_equal(found, wanted)
    for session in (whole, pieces):
        sessions.close(session)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 80), max_size=12))
def test_closed_sessions_give_back_every_block(lengths: list[int]) -> None:
    sessions, free, opened = runner("gemma3"), runner("gemma3").num_free, list[Session]()
    for length in lengths:
        try:
            opened.append(sessions.open(length))
        except MemoryError:
            break
    tables = [set(session.tables[0].tolist()) for session in opened if 0 in session.tables]
    assert sum(map(len, tables)) == len(set().union(*tables)), "two sessions share a block"
    for session in opened:
        sessions.close(session)
    assert sessions.num_free == free


def test_what_is_refused() -> None:
    sessions = runner("llama")
    with pytest.raises(ValueError, match="more than the 160"):
        sessions.open(161)
    session = sessions.open(16)
    for work, reason in (
        (Work(session, []), "a chunk has 1 to"),
        (Work(session, [1], num_logits=2), "logits of some of them"),
        (Work(session, [1] * 17), "opened for 16 tokens"),
        (Work(session, [10**6]), "token ids must lie in"),
    ):
        with pytest.raises(ValueError, match=reason):
            sessions.execute([work])
    with pytest.raises(ValueError, match="one chunk in a step"):
        sessions.execute([Work(session, [1]), Work(session, [2])])
    assert session.num_tokens == 0
    sessions.close(session)
