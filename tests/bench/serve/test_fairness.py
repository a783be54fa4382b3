import pytest

from surefoot.bench.harness.server_process import RunningServer
from surefoot.bench.harness.timing import EngineError
from surefoot.bench.harness.workloads import Task, mixed
from surefoot.bench.serve.fairness import Others, measure_fairness

VOCAB = 512


def test_a_single_user_and_a_busy_one(server: RunningServer) -> None:
    endpoint, probes = server.endpoint(), [Task((300, 301), 3)] * 4
    crowd = iter(mixed(200, VOCAB, 3, 0.2))
    fairness = measure_fairness(endpoint, probes[:3], probes, Others(endpoint, crowd, num_streams=6))
    assert (len(fairness.idle_s), len(fairness.busy_s)) == (2, 4)
    assert min(*fairness.idle_s, *fairness.busy_s, fairness.step_s) > 0
    assert fairness.ratio == (max(fairness.busy_s) - fairness.step_s) / max(fairness.idle_s)
    with pytest.raises(EngineError, match="no more tasks"):
        measure_fairness(endpoint, probes, probes, Others(endpoint, iter(mixed(6, VOCAB, 4, 0.1)), 6, num_begun=7))
    with pytest.raises(EngineError, match="failed: status 400"):
        measure_fairness(endpoint, [Task((300,) * 4000, 2)], probes, Others(endpoint, crowd, 6))
