"""Progress callbacks of long work."""

from collections.abc import Callable

ReportProgress = Callable[[str, int, int], None]  # the task's name, steps done, steps in total
Advance = Callable[[], None]  # called when one step is done


def step_counter(report: ReportProgress, task: str, total: int) -> Advance:
    """A function that reports one more of `total` steps as done each time it is called."""
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        report(task, done, total)

    report(task, 0, total)
    return advance
