"""stories15M as a GGUF file in float32, and stories that it tells: the place to study what rounding costs.

    python -m experiments.compress.stories15m FOLDER

writes stories15M.gguf, and calibration.txt and test.txt in its own words (different seeds).
"""

import subprocess
import sys
from pathlib import Path

import gguf

from surefoot.evaluate.engines import open_model
from surefoot.formats import FLOAT32
from surefoot.models import load
from surefoot.ops import Backend, SamplingRows
from surefoot.runner import Runner
from tests.stories import write_llama2c

TOOL = Path(__file__).parents[3] / "shared" / "tools" / "get-models"
CACHE = Path.home() / ".cache" / "surefoot" / "models"
NUM_STORIES, LENGTH = 64, 255  # at once; tokens of each, so that each fills a window of 256 with its BOS


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([TOOL, CACHE, "stories15m"], check=True, stdout=subprocess.DEVNULL)
    path = folder / "stories15M.gguf"
    write_llama2c(gguf.GGUFWriter(path, "llama"), CACHE / "stories15M.bin", CACHE / "stories15M-tokenizer.bin")
    checkpoint, tokenizer = open_model(path)
    backend = Backend()
    runner = Runner(backend, load(backend, checkpoint, FLOAT32), num_tokens=NUM_STORIES * 256, max_requests=NUM_STORIES)
    for name, seed in (("calibration", 1000), ("test", 0)):
        stories = [tokenizer.decode(one) for one in tell(runner, seed)]
        (folder / f"{name}.txt").write_text("\n".join(stories))


def tell(runner: Runner, first_seed: int, bos: int = 1) -> list[list[int]]:
    stories: list[list[int]] = [[] for _ in range(NUM_STORIES)]
    requests = [runner.open(LENGTH + 1) for _ in stories]
    last = [bos] * NUM_STORIES
    for position in range(1, LENGTH + 1):
        logits = runner.decode(requests, last)
        seeds = [first_seed + number for number in range(NUM_STORIES)]
        last = runner.sample(
            logits, SamplingRows.of(NUM_STORIES, temperature=1.0, seeds=seeds, positions=position)
        ).tokens.tolist()
        for story, token in zip(stories, last, strict=True):
            story.append(token)
    for request in requests:
        runner.close(request)
    return stories


if __name__ == "__main__":
    main(Path(sys.argv[1]))
