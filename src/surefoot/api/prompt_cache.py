"""The prompt cache on disk: where it is, how large, and what its blocks depend on."""

import hashlib
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from surefoot.cache import DiskTier
from surefoot.disk_cache import BlockCipher, BlockHasher, BlockStore, read_key
from surefoot.ops import KvForm
from surefoot.runner import KvStore
from surefoot.weights import BackgroundHash, hash_model

# To be raised by every change that alters a bit of any model's keys, values or states: blocks of others are misses.
# tests/api/test_prompt_cache.py notices such changes.
ARITHMETIC = 2
SHARE_OF_DISK = 0.1  # of the bytes that the cache holds and the disk has free


@dataclass(frozen=True)
class PromptCache:
    """Where and how prompts are cached on disk."""

    folder: Path
    max_bytes: int | None = None  # None: a tenth of the free disk
    key_file: Path | None = None  # encrypts what is written
    is_required: bool = True  # else a folder that cannot be used is done without
    waits: bool = True  # for the hash of the model's files, which is remembered; else the first requests do without


@dataclass(frozen=True)
class NoTier:
    """Why nothing is kept on disk."""

    reason: str


def default_folder(model_name: str) -> Path:
    """One for each model, since one process at a time may use it."""
    return cache_root() / model_name


def cache_root() -> Path:
    """Of all models' folders; `~` is not expanded yet, since there may be no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "surefoot" / "prompts"


def open_store(cache: PromptCache) -> tuple[BlockStore, BlockCipher | None]:
    """Raises OSError if the folder cannot be used."""
    cipher = read_key(cache.key_file) if cache.key_file is not None else None
    folder = cache.folder.expanduser()
    return BlockStore(folder, cache.max_bytes if cache.max_bytes is not None else _share(folder), cipher), cipher


def _share(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return int((held + shutil.disk_usage(folder).free) * SHARE_OF_DISK)


def open_tier(
    cache: PromptCache,
    model: Path,
    digests: BackgroundHash | None,
    float_format: str,
    kv_form: KvForm,
    blocks: KvStore,
    head: str = "",
) -> DiskTier | NoTier:
    """The tier below the prefix tree. digests: of the model's files, if they are being hashed already; else a thread
    hashes them here. head: tells which published head's keys and values the blocks have beside the model's."""
    try:
        store, cipher = open_store(cache)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        if cache.is_required:
            raise
        return NoTier(str(error))
    form = f"{ARITHMETIC} {float_format} {int(kv_form)} {blocks.block_size} {blocks.block_bytes} "
    form += f"{blocks.state_bytes} " if blocks.state_bytes else ""
    form += f"{head} " if head else ""

    def make_hasher() -> BlockHasher:
        hashed = digests.result() if digests is not None else hash_model(model, store.fact, store.set_fact)
        name = hashlib.blake2b(form.encode() + hashed.weights).digest()
        hasher = BlockHasher(name, cipher.hash_key if cipher else b"")
        store.set_fact(f"model {hasher.model.hex()}", model.name)
        return hasher

    thread = ThreadPoolExecutor(1, "surefoot-cache-model")
    made = thread.submit(make_hasher)
    thread.shutdown(wait=cache.waits)
    return DiskTier(store, lambda: _result(made), blocks)


def _result(made: "Future[BlockHasher]") -> BlockHasher | None:
    """None while the hash is not known, and if the files could not be read."""
    return made.result() if made.done() and made.exception() is None else None
