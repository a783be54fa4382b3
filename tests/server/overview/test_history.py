"""The rings of points that a restart keeps."""

from pathlib import Path

import pytest

from surefoot.server.overview.history import SPANS, History, Reading, point

GENERATED, FIRST = "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_bucket"


def reading(at: float, generated: float = 0.0, in_time: float = 0.0, late: float = 0.0) -> Reading:
    buckets = {(("le", "2.0"),): in_time, (("le", "5.0"),): in_time + late, (("le", "+Inf"),): in_time + late}
    return Reading(at, 1e9 + at, {GENERATED: {(): generated}, FIRST: buckets})


def test_a_point_covers_the_time_between_two_readings() -> None:
    found = point(reading(10, 100, 1), reading(20, 150, 4, 2))
    assert (found.at, found.generated, found.first_tokens, found.first_in_time) == (1e9 + 20, 5.0, 5, 3)
    assert found.first_s == pytest.approx(2 + 3 * (0.95 * 5 - 3) / 2)
    assert (found.gaps, found.gap_s) == (0, None)


def test_each_span_has_points_of_its_own_length() -> None:
    history = History()
    saves = [history.add(reading(second, generated=second)) for second in range(0, 4000, 5)]
    assert len(history.points("minutes")) == SPANS["minutes"].num_points
    assert [len(history.points(name)) for name in ("day", "week")] == [13, 2]
    assert sum(saves) == 13  # whenever the day has a point more
    assert {found.generated for name in SPANS for found in history.points(name)} == {1.0}
    assert history.columns("week")["at"] == [1e9 + 1800, 1e9 + 3600]


def test_a_restart_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    history = History(path)
    for second in range(0, 700, 5):
        history.add(reading(second, late=second))
    history.save()
    again = History(path)
    assert {name: again.points(name) for name in SPANS} == {name: history.points(name) for name in SPANS}
    again.add(reading(0))  # counters begin anew with the process: no point goes over the restart
    assert again.points("minutes") == history.points("minutes")


@pytest.mark.parametrize("text", ["", "{", '{"day": [{"at": 1}]}', "[]"])
def test_a_file_that_cannot_be_read_is_forgotten(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    assert History(path).points("day") == []
    assert "begins anew" in caplog.text


def test_a_full_disk_loses_it_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    History(tmp_path / "gone" / "history.json").save()
    assert "not kept" in caplog.text
