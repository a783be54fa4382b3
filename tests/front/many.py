"""A real front process with models a, b and c: three copies of a tiny model, of which a given number fit."""

import re
from pathlib import Path

import httpx
from openai import OpenAI

from surefoot.api.footprint import ModelOptions
from surefoot.front.config import ModelEntry
from surefoot.front.serve import FRONT_BYTES, plan_model
from tests.machine.memory_group import MemoryGroup
from tests.server.process import Server
from tests.stories import stories_gguf

NAMES = ("a", "b", "c")
OPTIONS = ModelOptions(max_context=512, max_running=8)
PROMPT = "Once upon a time"


def need_bytes() -> int:
    """Memory planned for one of the models."""
    return plan_model(ModelEntry("a", str(stories_gguf()), options=OPTIONS), None).footprint.total


def config_file(folder: Path, **more: dict[str, str]) -> Path:
    """more: further lines of a model's table, as TOML, by the model's name."""
    tables = []
    for name in NAMES:
        lines = {"name": f'"{name}"', "file": f'"{stories_gguf()}"', **more.get(name, {})}
        tables.append("\n".join(["[[model]]", *(f"{key} = {value}" for key, value in lines.items())]))
    path = folder / "surefoot.toml"
    path.write_text("\n\n".join(tables))
    return path


def room_bytes(num_fit: int) -> int:
    """Memory in which this number of models fit, and no more."""
    return FRONT_BYTES + int((num_fit + 0.5) * need_bytes())


class ManyModels(Server):
    def __init__(
        self, folder: Path, num_fit: int, *words: str, group: MemoryGroup | None = None, **more: dict[str, str]
    ) -> None:
        """group: has the memory's limit; None: the command line has it."""
        self.limit_bytes = room_bytes(num_fit)
        limit = () if group is not None else ("--memory", str(self.limit_bytes))
        options = ("--max-context", str(OPTIONS.max_context), "--max-running", str(OPTIONS.max_running))
        super().__init__(None, "--config", str(config_file(folder, **more)), *limit, *options, *words, group=group)

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=300)

    def states(self) -> dict[str, str]:
        return {card["id"]: card["state"] for card in self.cards()}

    def cards(self) -> list[dict]:
        return httpx.get(f"{self.url}/models").json()["data"]

    def num_loads(self) -> float:
        return self.metric("surefoot:model_loads_total")

    def children(self) -> dict[str, int]:
        """Processes of models by the model's name."""
        found = {}
        for pid in children_of(self.process.pid):
            words = _read(Path(f"/proc/{pid}/cmdline")).split("\0")
            if "--model-name" in words:
                found[words[words.index("--model-name") + 1]] = pid
        return found

    def used_bytes(self) -> int:
        """Memory of the front and of all processes below it that the kernel cannot drop."""
        return used_by_tree(self.process.pid)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in _read(Path(f"/proc/{pid}/task/{pid}/children")).split()]


def used_by_tree(pid: int) -> int:
    return anonymous_bytes(pid) + sum(map(used_by_tree, children_of(pid)))


def anonymous_bytes(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", _read(Path(f"/proc/{pid}/status")))
    return 1024 * int(found[1]) if found else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""


def ask(client: OpenAI, model: str, max_tokens: int = 8) -> str:
    reply = client.completions.create(model=model, prompt=PROMPT, max_tokens=max_tokens, seed=1, temperature=1)
    return reply.choices[0].text
