import pytest

from surefoot.bench.engine.versus import stall, worst_over_usual
from surefoot.bench.harness.server_process import RunningServer
from surefoot.bench.harness.timing import EngineError
from surefoot.bench.harness.workloads import Task


def test_gaps_that_touch_the_long_prompt_count_against_the_median_before_it() -> None:
    even = [float(second) for second in range(11)]
    stalled = [*even[:6], 5.0, 9.0, 10.0]  # two texts at 5 count once; nothing from 5 to 9
    assert stall([even, stalled], 5.5, 8.0) == pytest.approx(4.0, rel=0.1)
    assert stall([even, even], 5.5, 8.0) == 1.0


def test_texts_must_come_before_and_during_the_long_prompt() -> None:
    for times in ([3.0, 4.0], [0.0, 1.0]):
        with pytest.raises(EngineError, match="no texts came"):
            stall([times], 2.0, 2.5)


def test_streams_must_outlast_the_long_prompt(server: RunningServer) -> None:
    with pytest.raises(EngineError, match="ended too early: it was too short"):
        worst_over_usual(server.endpoint(), [Task((300, 301), 3)], Task((300,) * 9, 1), 5)


@pytest.mark.nightly
def test_a_long_prompt_stops_others(server: RunningServer) -> None:
    readers = [Task((300 + number, 301), 400) for number in range(3)]
    assert worst_over_usual(server.endpoint(), readers, Task((300,) * 200, 1), 5) > 1
