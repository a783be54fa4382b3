import pytest

from surefoot.bench.engine.long_prompt import worst_over_usual
from surefoot.bench.harness.server_process import RunningServer
from surefoot.bench.harness.timing import EngineError
from surefoot.bench.harness.workloads import Task


def test_a_long_prompt_stops_others(server: RunningServer) -> None:
    readers = [Task((300 + number, 301), 400) for number in range(3)]
    assert worst_over_usual(server.endpoint(), readers, Task((300,) * 200, 1), 5) > 1
    with pytest.raises(EngineError, match="ended too early: it was too short"):
        worst_over_usual(server.endpoint(), [Task((300, 301), 3)], Task((300,) * 9, 1), 5)
