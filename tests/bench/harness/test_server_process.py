from pathlib import Path

import pytest

from surefoot.bench.harness.server_process import free_port, own_launch, running
from surefoot.bench.harness.timing import EngineError


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    port = free_port()
    with (
        pytest.raises(EngineError, match=r"ended with code 1: .*not-there"),
        running(own_launch(tmp_path / "not-there.gguf", port), port),
    ):
        pass
