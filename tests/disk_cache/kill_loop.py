"""Kills a process that writes blocks, again and again: `python -m tests.disk_cache.kill_loop --times 1000`.

After each kill the store opens, and every block that it has is whole. What a block holds follows from its number.
"""

import argparse
import random
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from surefoot.disk_cache import BlockStore
from tests.disk_cache.blocks import name_of, payload_of
from tests.killing import kill_at_work

BUDGET = 4 << 20
NUM_BLOCKS = 200
EACH = 100  # kills that are reported together
SIZES = (500, 20_000, 90_000)


@dataclass(frozen=True)
class KillReport:
    num_kills: int
    num_found: int  # blocks found after a kill, over all kills
    num_torn: int  # kills after which the last record was torn


def write_forever(folder: Path, first: int, sender: Connection) -> None:
    """Says so after each block, so that the killer knows that it is at work."""
    store, number = BlockStore(folder, BUDGET), first
    while True:
        number = (number + 1) % NUM_BLOCKS
        store.write(name_of(number), payload_of(number, SIZES[number % 3]))
        store.read(name_of((number * 7) % NUM_BLOCKS).digest)
        sender.send(number)


def run_kills(folder: Path, times: int, seed: int) -> KillReport:
    rng, num_found, num_torn = random.Random(seed), 0, 0
    for count in range(times):
        kill_at_work(write_forever, (folder, count * 31), rng.randrange(1, 60), delay_s=rng.random() / 500)
        before = sum(file.stat().st_size for file in folder.glob("*.blocks"))
        store = BlockStore(folder, BUDGET)
        num_torn += store.total_bytes < before
        assert store.total_bytes <= BUDGET + store.segment_bytes
        for number in range(NUM_BLOCKS):
            payload = store.read(name_of(number).digest)
            assert payload is None or payload == payload_of(number, SIZES[number % 3]), "another block's bytes"
            num_found += payload is not None
        assert store.counters.num_damaged == 0, "a torn block was in the index"
        store.close()
    return KillReport(times, num_found, num_torn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1000)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="surefoot-kills-") as folder:
        for first in range(0, words.times, EACH):
            print(run_kills(Path(folder), min(EACH, words.times - first), seed=first), flush=True)


if __name__ == "__main__":
    main()
