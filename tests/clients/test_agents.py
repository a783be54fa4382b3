"""The coding agents themselves, at the versions that `surefoot agent` names, on a small repository: a turn with a tool,
the tool's result, and the session resumed. The model is SmolLM2's first layer, so a proxy forces what it does."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import gguf
import pytest

from surefoot.cli.agent_recorder import make_home
from surefoot.cli.coding_agents import AGENTS
from tests.clients.forcing_proxy import ANSWER, Exchange, Forced, forcing
from tests.server.process import Server
from tests.smollm2 import find_file

pytestmark = pytest.mark.nightly

CONTEXT = 65536
README = "The answer is forty-two.\n"
BLOCK = 16  # tokens that the cache keeps together
RUN_S = 600


@dataclass(frozen=True)
class Played:
    """How an agent is run without a terminal: words before a question, for a new and for the last session."""

    new: str
    again: str
    tool: str = ""
    argument: str = ""
    value: str = "{project}/README.md"
    lasts: float = 0.99  # the part of a prompt that the next one of the session begins with, without its last block

    def forced(self, project: Path) -> Forced | None:
        return Forced(self.tool, self.argument, self.value.format(project=project)) if self.tool else None


PLAYED = {
    "claude-code": Played("-p", "--continue -p", "Read", "file_path"),
    "codex": Played(
        "exec --skip-git-repo-check", "exec resume --skip-git-repo-check --last", "exec_command", "cmd", "cat README.md"
    ),
    "opencode": Played("run", "run --continue", "read", "filePath"),
    "qwen-code": Played("-p", "--continue -p", "read_file", "file_path"),
    "continue": Played("-p", "--resume -p", "Read", "filepath"),
    # It writes a part of its rules behind the newest message, so that part moves.
    "aider": Played("--yes-always --message", "--yes-always --restore-chat-history --message", lasts=0.6),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agents, installed. SUREFOOT_AGENTS: a folder where they are kept."""
    folder = Path(os.environ.get("SUREFOOT_AGENTS") or tmp_path_factory.mktemp("agents"))
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    packages = [agent.install.split()[-1] for agent in AGENTS.values() if agent.install.startswith("npm ")]
    found = folder / "node_modules" / ".bin"
    if not all((found / agent.program).exists() for agent in AGENTS.values() if agent.install.startswith("npm ")):
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *packages], check=True)
    if not (folder / "aider" / "bin" / "aider").exists():
        (aider,) = (agent.install.split()[-1] for agent in AGENTS.values() if agent.program == "aider")
        subprocess.run(["python3", "-m", "venv", folder / "aider"], check=True)
        subprocess.run([folder / "aider" / "bin" / "pip", "install", "--quiet", aider], check=True)
    (found / "aider").unlink(missing_ok=True)
    (found / "aider").symlink_to(folder / "aider" / "bin" / "aider")
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("model") / "first-layer.gguf"
    write_first_layer(find_file(), file)
    made = Server(file, "--max-context", str(CONTEXT))
    yield made
    made.stop()


def write_first_layer(source: Path, target: Path) -> None:
    """The model with one layer and a long context: real words, in a moment."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    changed = {"llama.block_count": 1, "llama.context_length": CONTEXT}
    for name, entry in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind, inner = entry.types[0], entry.types[-1] if len(entry.types) > 1 else None
            writer.add_key_value(name, changed.get(name, entry.contents()), kind, sub_type=inner)
    for tensor in reader.tensors:
        if not tensor.name.startswith("blk.") or tensor.name.startswith("blk.0."):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", PLAYED)
def test_a_session(name: str, programs: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    played, agent, home = PLAYED[name], AGENTS[name], tmp_path / "home"
    with forcing(server.root, played.forced(home / "project")) as (url, exchanges):
        project, environment = make_home(agent, home, url, "small")
        (project / "README.md").write_text(README)

        def run(words: str) -> None:
            done = subprocess.run(
                [agent.program, *shlex.split(words), "Read README.md."], cwd=project, env=environment,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            assert ANSWER in done.stdout + done.stderr

        run(played.new)
        num_first = len(exchanges)
        run(played.again)
    report(name, exchanges, num_first)
    assert {exchange.status for exchange in exchanges} == {200}, [exchange.text[:500] for exchange in exchanges]
    if played.tool:
        results = [exchange for exchange in exchanges if exchange.is_result]
        assert len(results) >= 2, "a tool's result came back in both runs"
        assert README.strip() in str(results[0].body)
    turns = [exchange for exchange in exchanges if exchange.prompt_tokens > exchanges[-1].prompt_tokens / 2]
    for before, after in pairwise(turns):
        assert after.cached_tokens >= played.lasts * before.prompt_tokens - BLOCK, (before.usage, after.usage)


def report(name: str, exchanges: list[Exchange], num_first: int) -> None:
    """For the log of a nightly run."""
    for number, exchange in enumerate(exchanges):
        run = "resumed" if number >= num_first else "first"
        tokens = f"{exchange.cached_tokens} of {exchange.prompt_tokens}" if exchange.usage else "no usage"
        print(f"{name}: {run} run, {exchange.path}: {exchange.status}, {tokens}")
