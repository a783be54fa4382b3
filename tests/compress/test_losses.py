"""The file that losses are kept in."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.compress.allocate import Option
from surefoot.compress.losses import Kept


def test_losses_are_kept_for_what_they_were_measured_of(tmp_path: Path) -> None:
    table = {"blk.0.attn_q.weight": [Option("Q4_K", 144, 0.25), Option("Q6_K", 210, 0.0)]}
    kept = Kept(tmp_path / "losses", "this")
    assert kept("layer 0", lambda: table) == table
    assert kept("layer 0", lambda: pytest.fail("it is known")) == table
    other = {"blk.0.attn_q.weight": [Option("Q4_K", 144, 0.5)]}
    assert kept("layer 1", lambda: other) == other
    assert Kept(kept.place, "that")("layer 0", lambda: other) == other
    assert kept("layer 0", lambda: table) == table  # what "that" left is not read, though it is of the same part
    assert kept("all", lambda: kept("layer 2", lambda: other) | table) == other | table
    assert set(json.loads(kept.place.read_text())["parts"]) == {"layer 0", "all"}
    assert Kept(tmp_path / "no folder" / "losses", "this")("layer 0", lambda: table) == table


@given(st.data())
def test_any_file_of_losses_is_read_or_made_anew(data: st.DataObject) -> None:
    table = {"a": [Option("Q4_K", 144, 0.25)]}
    with tempfile.TemporaryDirectory() as folder:
        kept = Kept(Path(folder) / "losses", "this")
        kept("head", lambda: table)
        whole = kept.place.read_bytes()
        start = data.draw(st.integers(0, len(whole)))
        end = data.draw(st.integers(start, len(whole)))
        kept.place.write_bytes(whole[:start] + data.draw(st.binary(max_size=8)) + whole[end:])
        found = kept("head", lambda: table)
        assert all(isinstance(option, Option) and option.loss >= 0 for some in found.values() for option in some)
