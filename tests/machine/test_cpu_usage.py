import os
from pathlib import Path

import pytest

from surefoot.machine.cpu_usage import CpuUsage, others_share, usage


def test_share_of_others() -> None:
    before, after = CpuUsage(100, 40, 10), CpuUsage(120, 55, 19)
    assert others_share(before, after) == pytest.approx((15 - 9) / 20)
    assert others_share(before, CpuUsage(120, 45, 19)) == 0  # clocks of different resolution may disagree a little
    assert others_share(before, before) == 0


def test_only_our_processors_count(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    stat = tmp_path / "stat"
    stat.write_text(
        f"cpu 9 9 9 9 9 9 9 9 9 9\ncpu{cpu} 100 20 30 700 50 5 6 9 100 0\ncpu4095 1 1 1 1 1 1 1 1 1 1\nintr 5\n"
    )
    used, hertz = usage(stat), os.sysconf("SC_CLK_TCK")
    assert used.all_seconds == pytest.approx(920 / hertz)
    assert used.busy_seconds == pytest.approx(170 / hertz)
    assert used.own_seconds > 0
