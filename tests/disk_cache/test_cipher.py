"""Encryption at rest: nothing on the disk tells the text, and only the key reads it."""

from pathlib import Path

import pytest

from surefoot.disk_cache import BlockHasher, BlockName, BlockStore, CacheKeyError, read_key
from tests.disk_cache.blocks import payload_of

pytest.importorskip("cryptography", reason="cryptography is not installed: pip install -e '.[dev]'")
BUDGET = 1 << 20


def key_file(folder: Path, name: str, fill: int) -> Path:
    path = folder / name
    path.write_bytes(bytes([fill]) * 32)
    path.chmod(0o600)
    return path


def test_only_the_key_reads_the_blocks(tmp_path: Path) -> None:
    cipher = read_key(key_file(tmp_path, "key", 1))
    hasher = BlockHasher(b"a model", cipher.hash_key)
    user = hasher.namespace("ann")
    name = BlockName(hasher.child(hasher.root, user, (1, 2)), hasher.root, hasher.model, user, 5)
    payload = payload_of(1, 4000)
    store = BlockStore(tmp_path / "cache", BUDGET, cipher)
    store.write(name, payload)
    assert store.read(name.digest) == payload
    store.close()
    on_disk = b"".join(file.read_bytes() for file in (tmp_path / "cache").iterdir())
    assert payload[:64] not in on_disk
    plain = BlockHasher(b"a model")
    assert plain.child(plain.root, plain.namespace("ann"), (1, 2)) not in on_disk, "a guessed text can be checked"
    assert plain.namespace("ann") not in on_disk
    for other in (None, read_key(key_file(tmp_path, "other", 2))):
        store = BlockStore(tmp_path / "cache", BUDGET, other)
        assert store.read(name.digest) != payload
        store.close()


def test_blocks_cannot_be_exchanged(tmp_path: Path) -> None:
    cipher = read_key(key_file(tmp_path, "key", 1))
    names = [BlockName(bytes([n]) * 32, bytes(32), bytes(16), bytes(16), 0) for n in (1, 2)]
    nonce, data = cipher.encrypt(names[0], b"text")
    assert cipher.decrypt(names[0], nonce, data) == b"text"
    with pytest.raises(ValueError, match="another key"):
        cipher.decrypt(names[1], nonce, data)


@pytest.mark.parametrize(
    ("size", "mode", "reason"), [(31, 0o600, "32 random bytes"), (33, 0o600, "32"), (32, 0o640, "chmod")]
)
def test_unfit_key_files_are_refused(tmp_path: Path, size: int, mode: int, reason: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(size))
    path.chmod(mode)
    with pytest.raises(CacheKeyError, match=reason):
        read_key(path)
