"""Every Nth call on the store's files fails: `python -m tests.disk_cache.fault_run`, or a sample with `--every 7`.

Under the fault the store may refuse to open or to write. Whatever it reads, then and after a start without the fault,
is what was written or nothing. Runs itself again with the library of tests/faults.
"""

import argparse
import errno
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from surefoot.disk_cache import BlockStore
from tests.disk_cache.blocks import HASHER, name_of, payload_of
from tests.faults.injector import Fault, Injector, environment

BUDGET = 60_000
NUM_BLOCKS = 60
FAULTS = (
    Fault(("read",), 0),
    Fault(("read",), 0, lasting=True),
    Fault(("write",), 0, errno.ENOSPC, torn=True),
    Fault(("write",), 0, errno.ENOSPC, lasting=True, torn=True),
    Fault(("sync",), 0, lasting=True),
    Fault(("open",), 0, errno.EMFILE),
    Fault(("unlink", "truncate"), 0),
    Fault(("read", "write", "sync", "open", "unlink", "truncate"), 0, lasting=True, torn=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="of the calls")
    words = parser.parse_args()
    if "LD_PRELOAD" not in os.environ:
        command = [sys.executable, "-m", "tests.disk_cache.fault_run", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment(), check=False).returncode)
    injector = Injector()
    for offset, kind in enumerate(FAULTS):
        num_runs = 0
        for n in itertools.count(1 + offset % words.every, words.every):
            fault = replace(kind, n=n)
            if not run(injector, fault):
                break
            num_runs += 1
        print(f"{num_runs:4} runs: up to {fault}", flush=True)


def run(injector: Injector, fault: Fault) -> bool:
    """Whether there were as many calls."""
    folder = Path(tempfile.mkdtemp(prefix="surefoot-fault-"))
    try:
        fill(BlockStore(folder, BUDGET), range(20))
        injector.arm(fault, folder)
        try:
            fill(BlockStore(folder, BUDGET), range(10, NUM_BLOCKS))
        except OSError:
            assert injector.num_hits
        is_hit = injector.num_hits > 0
        injector.disarm()
        check_store(folder)
        return is_hit
    finally:
        injector.disarm()
        shutil.rmtree(folder)


def fill(store: BlockStore, numbers: range) -> None:
    try:
        for number in numbers:
            try:
                store.write(name_of(number, "ann" if number % 2 else "bob"), payload_of(number))
            except OSError:
                continue
            check_block(store, number // 2)
        with suppress(OSError):
            store.forget(HASHER.namespace("cid"))
    finally:
        store.close()


def check_store(folder: Path) -> None:
    store = BlockStore(folder, BUDGET)
    for number in range(NUM_BLOCKS):
        check_block(store, number)
    assert store.total_bytes <= BUDGET + store.segment_bytes
    assert store.write(name_of(99), payload_of(99))
    assert store.read(name_of(99).digest) == payload_of(99)
    store.close()


def check_block(store: BlockStore, number: int) -> None:
    payload = store.read(name_of(number, "ann" if number % 2 else "bob").digest)
    assert payload is None or payload == payload_of(number), "another block's bytes"


if __name__ == "__main__":
    main()
