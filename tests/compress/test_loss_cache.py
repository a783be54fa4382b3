"""The file that losses are cached in."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot_compress.allocate import FormatOption
from surefoot_compress.loss_cache import LossCache


def test_cached_losses_belong_to_one_fingerprint(tmp_path: Path) -> None:
    table = {"blk.0.attn_q.weight": [FormatOption("Q4_K", 144, 0.25), FormatOption("Q6_K", 210, 0.0)]}
    cache = LossCache(tmp_path / "losses", "this")
    assert cache("layer 0", lambda: table) == table
    assert cache("layer 0", lambda: pytest.fail("it is known")) == table
    other = {"blk.0.attn_q.weight": [FormatOption("Q4_K", 144, 0.5)]}
    assert cache("layer 1", lambda: other) == other
    assert LossCache(cache.path, "that")("layer 0", lambda: other) == other
    assert cache("layer 0", lambda: table) == table  # the entry of "that" is ignored, although it has the same name
    assert cache("all", lambda: cache("layer 2", lambda: other) | table) == other | table
    assert set(json.loads(cache.path.read_text())["parts"]) == {"layer 0", "all"}
    assert LossCache(tmp_path / "no folder" / "losses", "this")("layer 0", lambda: table) == table


@given(st.data())
def test_a_damaged_loss_file_is_read_or_measured_again(data: st.DataObject) -> None:
    table = {"a": [FormatOption("Q4_K", 144, 0.25)]}
    with tempfile.TemporaryDirectory() as folder:
        cache = LossCache(Path(folder) / "losses", "this")
        cache("head", lambda: table)
        whole = cache.path.read_bytes()
        start = data.draw(st.integers(0, len(whole)))
        end = data.draw(st.integers(start, len(whole)))
        cache.path.write_bytes(whole[:start] + data.draw(st.binary(max_size=8)) + whole[end:])
        options = [option for row in cache("head", lambda: table).values() for option in row]
        assert all(isinstance(option, FormatOption) and option.loss >= 0 for option in options)
