from surefoot.bench.harness.workloads import mixed, num_tokens


def test_the_mixed_workload() -> None:
    tasks = mixed(32, 49152, seed=1)
    assert all(128 <= len(task.prompt) <= 256 and 16 <= task.num_new <= 128 for task in tasks)
    again = mixed(32, 49152, seed=2)
    assert [len(task.prompt) for task in tasks] == [len(task.prompt) for task in again]
    assert all(a.prompt != b.prompt for a, b in zip(tasks, again, strict=True))
    assert num_tokens(mixed(32, 49152, 1, 0.5)) == sum(max(1, round(task.num_new / 2)) for task in tasks)
