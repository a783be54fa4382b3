"""A bound on the processor time of another process: a busy machine does not reach it sooner than an idle one."""

import time

PATIENCE = 30.0  # times the allowance, in seconds of the wall: for a process that waits instead of working


class CpuAllowance:
    """Processor time that another process may use from now on, for one piece of work."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._until = cpu_seconds(pid) + seconds
        self._give_up = time.monotonic() + PATIENCE * seconds

    def wait_s(self) -> float:
        """Seconds to wait before asking again; less cannot use up the allowance. Raises TimeoutError if it is used up,
        and ProcessLookupError if the process is gone."""
        left = min(self._until - cpu_seconds(self._pid), self._give_up - time.monotonic())
        if left <= 0:
            raise TimeoutError
        return left


def cpu_seconds(pid: int) -> float:
    """Processor time that all threads of a process have used. Raises ProcessLookupError if there is no such process."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # Linux's number for the CPU clock of a process
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error
