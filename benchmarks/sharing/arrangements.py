"""Ways to run two models on the same cores, and the servers for each."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from surefoot.bench.harness.server_process import MODEL_NAME, SUREFOOT, Launch, free_port, own_launch, running

NAMES = ("first", "second")  # of the models behind the front
OPTIONS = ("--max-running", "32", "--max-context", "1024", "--cache-dir", "none")
MOST_SPLITS = 7


@dataclass(frozen=True)
class Arrangement:
    """threads: of each model's own server; None: both are behind one front, which shares the cores out."""

    threads: tuple[int, int] | None

    @property
    def name(self) -> str:
        return "shared" if self.threads is None else "+".join(map(str, self.threads))


@dataclass(frozen=True)
class ServedModel:
    port: int
    name: str


SHARED = Arrangement(None)


def fixed_splits(num_cores: int) -> list[Arrangement]:
    """Splits of the cores between two models; of many, some that are evenly spaced. One core is for both."""
    if num_cores == 1:
        return [Arrangement((1, 1))]
    step = max(1, -(-(num_cores - 1) // MOST_SPLITS))
    return [Arrangement((first, num_cores - first)) for first in range(1, num_cores, step)]


def unshared(num_cores: int) -> Arrangement:
    """Each model has threads for all cores, as if it were alone."""
    return Arrangement((num_cores, num_cores))


@contextmanager
def serving(models: Sequence[str], arrangement: Arrangement, num_cores: int) -> Iterator[list[ServedModel]]:
    """Both models, loaded."""
    with ExitStack() as stack:
        if arrangement.threads is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="surefoot-sharing-")))
            port = free_port()
            stack.enter_context(running(_front(models, folder, port, num_cores), port))
            yield [ServedModel(port, name) for name in NAMES]
            return
        ports = [free_port() for _ in models]
        for model, port, num_threads in zip(models, ports, arrangement.threads, strict=True):
            stack.enter_context(running(own_launch(model, port, "--threads", str(num_threads), *OPTIONS), port))
        yield [ServedModel(port, MODEL_NAME) for port in ports]


def _front(models: Sequence[str], folder: Path, port: int, num_cores: int) -> Launch:
    """Pinned models are loaded when the front is ready."""
    config = folder / "surefoot.toml"
    tables = [
        f"[[model]]\nname = {json.dumps(name)}\nfile = {json.dumps(model)}\npinned = true\n"
        for name, model in zip(NAMES, models, strict=True)
    ]
    config.write_text("\n".join(tables), encoding="utf-8")
    own = ("--config", str(config), "--port", str(port), "--threads", str(num_cores), "--state-dir", str(folder))
    return Launch((*SUREFOOT, "serve", *own, *OPTIONS), "/ready")
