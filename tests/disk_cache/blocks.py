"""Blocks for tests: their bytes follow from their number."""

import random
from pathlib import Path

from surefoot.disk_cache import NO_PARENT, BlockHasher, BlockName, BlockStore

HASHER = BlockHasher(b"a model")


def payload_of(number: int, size: int = 1000) -> bytes:
    return random.Random(number).randbytes(size)


def name_of(number: int, user: str | None = "ann", cost_us: int = 100, parent: bytes = NO_PARENT) -> BlockName:
    namespace = HASHER.namespace(user)
    return BlockName(HASHER.child(parent, namespace, (number,)), parent, HASHER.model, namespace, cost_us)


def write(store: BlockStore, number: int, user: str | None = "ann", size: int = 1000) -> BlockName:
    name = name_of(number, user)
    assert store.write(name, payload_of(number, size))
    return name


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.blocks"))
