from surefoot.bench.harness.workloads import mixed, num_tokens, queued, shared_prefix


def test_the_mixed_workload() -> None:
    tasks = mixed(32, 49152, seed=1)
    assert all(128 <= len(task.prompt) <= 256 and 16 <= task.num_new <= 128 for task in tasks)
    again = mixed(32, 49152, seed=2)
    assert [len(task.prompt) for task in tasks] == [len(task.prompt) for task in again]
    assert all(a.prompt != b.prompt for a, b in zip(tasks, again, strict=True))
    assert num_tokens(mixed(32, 49152, 1, 0.5)) == sum(max(1, round(task.num_new / 2)) for task in tasks)


def test_the_other_workloads() -> None:
    lengths = sorted(task.num_new for task in queued(2000, 49152, 1, "log-uniform"))
    assert 10 == lengths[0] < 395 < lengths[-1] <= 400
    assert abs(lengths[1000] - 63) < 8  # the root of 10 * 400
    halves = [task.num_new for task in queued(64, 49152, 1, "50 or 200")]
    assert halves.count(50) == halves.count(200) == 32
    assert halves != sorted(halves)
    assert {task.num_new for task in queued(64, 49152, 1, "equal", 0.5)} == {50}
    shared = shared_prefix(32, 49152, 1, 1.0, cached=True)
    assert {len(task.prompt) for task in shared} == {1056}
    assert len({task.prompt[:1024] for task in shared}) == len({task.namespace for task in shared}) == 1
    assert len({task.namespace for task in shared_prefix(32, 49152, 1, 1.0, cached=False)}) == 32
