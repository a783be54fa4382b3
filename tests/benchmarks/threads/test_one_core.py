from benchmarks.threads.one_core import one_core
from surefoot.bench.harness.server_process import Launch


def test_one_core_is_what_the_command_gets() -> None:
    say_cores = Launch(("python", "-c", "pass"), "/")
    with one_core(say_cores, "test") as (launch, way):
        assert launch.command[-3:] == say_cores.command
        assert way in ("quota", "affinity")
        assert launch.command[0] == "sh" if way == "quota" else launch.command[0].endswith("taskset")
