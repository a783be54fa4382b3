"""Keys, rates and stream positions, without a server."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.server.access.key_file import KeyEntry, KeyFileError, add_key, hash_of, make_key, read_keys
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.rates import TokenBucket
from surefoot.server.access.request_context import StreamPosition, digest_of
from surefoot.server.errors import ApiError
from surefoot.server.settings import ServerSettings


def test_bucket_refills_and_may_be_overdrawn() -> None:
    now = 0.0
    bucket = TokenBucket(60, clock=lambda: now)
    assert bucket.wait_s(60) == 0
    bucket.take(90)
    assert bucket.wait_s(1) == pytest.approx(31)
    now = 31.0
    assert bucket.wait_s(1) == 0
    now = 1000.0
    assert bucket.wait_s(60) == 0
    bucket.take(60)
    assert bucket.wait_s(10**9) == pytest.approx(60), "more than it holds is to be had when it is full"


def test_keys_are_found_by_what_they_hash_to(tmp_path: Path) -> None:
    key, file = make_key(), tmp_path / "keys.toml"
    add_key(file, KeyEntry(hash=hash_of(key), user="a.b@c", weight=2, tokens_per_minute=10))
    add_key(file, KeyEntry(hash=hash_of(make_key()), user="d"))
    store = KeyStore(file)
    caller = store.find(key)
    assert caller is not None
    assert (caller.user, caller.weight, caller.max_context) == ("a.b@c", 2.0, None)
    assert store.find(key + "x") is None
    assert len(store) == 2


def test_reading_again_refills_no_rate(tmp_path: Path) -> None:
    key, file = make_key(), tmp_path / "keys.toml"
    add_key(file, KeyEntry(hash=hash_of(key), user="a", tokens_per_minute=10))
    store = KeyStore(file)
    store.find(key).tokens.take(100)  # type: ignore[union-attr]
    add_key(file, KeyEntry(hash=hash_of(make_key()), user="b"))
    assert store.reload_if_changed()
    assert not store.reload_if_changed()
    assert store.find(key).tokens.wait_s(1) > 60  # type: ignore[union-attr]


ENTRY = f'[[key]]\nhash = "{hash_of("k")}"\nuser = "a"\n'


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "key = 5",
        '[[key]]\nuser = "a"',
        '[[key]]\nhash = "sha256:12"\nuser = "a"',
        ENTRY + "weight = nan",
        ENTRY + "wieght = 2",
        ENTRY.replace('"a"', '"a\\nb"'),
        2 * ENTRY,
    ],
)
def test_wrong_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.toml").write_text(text)
    with pytest.raises(KeyFileError, match=r"keys\.toml"):
        read_keys(tmp_path / "keys.toml")


@given(
    st.integers(0, 2**63 - 1),
    st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), min_size=1, max_size=16),
    st.booleans(),
)
def test_positions_come_back_whole(seed: int, answers: list[tuple[int, bool]], usage_sent: bool) -> None:
    counts, ended = zip(*answers, strict=True)
    position = StreamPosition(digest_of("a"), "f" * 32, 1_790_000_000, seed, counts, ended, usage_sent)
    assert StreamPosition.parse(str(position), digest_of("a"), len(answers)) == position
    with pytest.raises(ApiError):
        StreamPosition.parse(str(position), digest_of("b"), len(answers))
    with pytest.raises(ApiError):
        StreamPosition.parse(str(position), digest_of("a"), len(answers) + 1)


@given(st.text(max_size=200))
def test_no_text_is_a_position_by_chance(text: str) -> None:
    with pytest.raises(ApiError):
        StreamPosition.parse(text, digest_of("a"), 1)


def test_only_loopback_is_loopback() -> None:
    assert ServerSettings().is_loopback
    assert not ServerSettings(host="0.0.0.0").is_loopback
    assert not ServerSettings(host="::").is_loopback
    assert not ServerSettings(host="192.168.1.5").is_loopback
