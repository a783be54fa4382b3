"""What a server says at its start about its speed."""

import pytest

from surefoot import LLM
from surefoot.server.banner import describe_speed
from tests.stories import stories_gguf


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(stories_gguf(), threads=1)


def test_a_busy_machine_is_named_as_the_reason(llm: LLM) -> None:
    alone, busy = (list(describe_speed(llm, 1e9, share)) for share in (0.05, 0.63))
    assert busy[: len(alone)] == alone
    (said,) = busy[len(alone) :]
    assert said.startswith("busy     other programs took 63% of the processors while this was measured")


def test_no_user_is_promised_what_one_alone_does_not_get(llm: LLM) -> None:
    """At three tokens a second nobody sees five."""
    slow, quick = ("\n".join(describe_speed(llm, rate * llm.read_bytes(1024), 0.0)) for rate in (3, 300))
    assert "at most 3.0 tokens/s for one user, and people read 5" in slow
    assert "who each see" not in slow
    assert "at most 300 tokens/s for one user, " in quick
    assert "who each see 5 or more" in quick
