"""The direction of imports. If a test fails, move the code, not the rule."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.arch import imports

ROOT = Path(__file__).parents[2]
RULES = [
    imports.unknown_layers, imports.wrong_direction, imports.wrong_room, imports.relative, imports.hidden,
    imports.foreign,
]  # fmt: skip

# What each rule must find: files of a small package, and a word of the complaint.
BROKEN = [
    (imports.unknown_layers, {"helpers/__init__.py": ""}, "helpers"),
    (imports.wrong_direction, {"ops/a.py": "import surefoot.engine"}, "surefoot.engine"),
    (imports.wrong_direction, {"kv/a.py": "from surefoot import machine", "machine/__init__.py": ""}, "machine"),
    (imports.wrong_direction, {"kv/a.py": "from surefoot.scheduler import Scheduler"}, "scheduler"),
    (imports.wrong_direction, {"core/a.py": "from surefoot.kv import KvLayout"}, "kv"),
    (imports.wrong_direction, {"scheduler/a.py": "from surefoot.runner import Runner"}, "runner"),
    (imports.wrong_direction, {"runner/a.py": "from surefoot.scheduler import Scheduler"}, "scheduler"),
    (imports.wrong_direction, {"models/a.py": "from surefoot.sampling.noise import Noise"}, "sampling"),
    (imports.wrong_direction, {"api/a.py": "if True:\n    from surefoot.bench import x"}, "bench"),
    (imports.wrong_direction, {"cli/a.py": "from surefoot_compress.run import x"}, "surefoot_compress"),
    (imports.wrong_direction, {"../../compress/src/surefoot_compress/a.py": "import surefoot.cli"}, "surefoot.cli"),
    (imports.wrong_direction, {"../../compress/src/surefoot_compress/a.py": "import surefoot.server"}, "server"),
    (imports.wrong_direction, {"__init__.py": "from surefoot.api import LLM"}, "api"),
    (imports.wrong_room, {"bench/serve/a.py": "from surefoot.bench.engine.b import c"}, "bench.engine"),
    (imports.wrong_room, {"bench/harness/a.py": "from surefoot.bench.peers.b import c"}, "bench.peers"),
    (imports.wrong_room, {"bench/peers/a.py": "import surefoot.bench"}, "bench.peers"),
    (imports.wrong_room, {"bench/attic/a.py": "import json"}, "bench.attic"),
    (imports.wrong_room, {"server/schemas/a.py": "from surefoot.server.answer.b import c"}, "server.answer"),
    (imports.wrong_room, {"server/access/a.py": "from surefoot.server.schemas.b import c"}, "server.schemas"),
    (imports.wrong_room, {"server/batch/a.py": "from surefoot.server.routes.b import c"}, "server.routes"),
    (imports.wrong_room, {"server/routes/a.py": "from surefoot.server.routes.b import c"}, "server.routes.b"),
    (imports.wrong_room, {"server/service.py": "from surefoot.server.answer.b import c"}, "server.answer"),
    (imports.relative, {"ops/a.py": "from .b import c"}, ".b"),
    (imports.hidden, {"ops/a.py": "def f():\n    from surefoot.core import x"}, "core"),
    (imports.foreign, {"scheduler/a.py": "import numpy as np"}, "numpy"),
    (imports.foreign, {"kv/a.py": "from sortedcontainers import SortedDict"}, "sortedcontainers"),
    (imports.foreign, {"engine/a.py": "def f():\n    import torch.nn"}, "torch"),
    (imports.foreign, {"engine/a.py": "from fastapi import FastAPI"}, "fastapi"),
    (imports.find_cycle, {"ops/a.py": "from surefoot.ops import b", "ops/b.py": "import surefoot.ops.a"}, "ops.b"),
    (imports.find_cycle, {"ops/__init__.py": "import surefoot.ops.a", "ops/a.py": "import surefoot.ops"}, "ops.a"),
]  # fmt: skip


@pytest.mark.parametrize("rule", [*RULES, imports.find_cycle], ids=lambda rule: rule.__name__)
def test_the_source_follows_the_rules(rule: Callable[[Path], list[str]]) -> None:
    assert imports.find_modules(ROOT)
    assert rule(ROOT) == []


@pytest.mark.parametrize(("rule", "files", "word"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_violations_are_detected(
    tmp_path: Path, rule: Callable[[Path], list[str]], files: dict[str, str], word: str
) -> None:
    for name, text in files.items():
        file = tmp_path / "src/surefoot" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert word in " ".join(rule(tmp_path))


def test_layers_have_no_cycle() -> None:
    for layer, below in imports.LAYERS.items():
        assert all(layer not in imports.allowed_below(one) for one in below)


def test_loading_the_command_loads_no_torch() -> None:
    check = "import sys; from surefoot.cli.main import COMMANDS, Commands; "
    check += "[Commands(name='surefoot').get_command(None, name) for name in COMMANDS]; "
    check += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# ---- connections outwards ----

OUTWARD = "surefoot.front.upstreams"
# How a server could open a connection. `proxy.py` has sockets of this machine's file system alone.
CONNECTING = re.compile(
    r"AsyncHTTPTransport|HTTPTransport|AsyncClient\(|create_connection|open_connection\((?!sock=)|urlopen|\.connect\("
)
ALLOWED = {"front/upstreams.py", "front/proxy.py"}


def test_a_server_without_upstreams_has_no_module_that_connects_outwards() -> None:
    """It is imported by name, where the configuration has an upstream."""
    assert [str(found) for found in imports.find_imports(ROOT) if found.target == OUTWARD] == []
    check = "import sys, surefoot.cli.serve, surefoot.cli.serve_many, surefoot.front.app, surefoot.server.serve; "
    check += f"sys.exit({OUTWARD!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_no_other_part_of_a_server_connects() -> None:
    source = ROOT / imports.PACKAGES["surefoot"]
    files = [*source.glob("front/**/*.py"), *source.glob("server/**/*.py")]
    found = {str(file.relative_to(source)) for file in files if CONNECTING.search(file.read_text())}
    assert found == ALLOWED
