"""State: what is damaged on disk shows, and is mended or told; nothing wrong with one batch stops another."""

import asyncio
import contextlib
import functools
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot import LLM
from surefoot.server.batch import input_lines
from surefoot.server.batch.answer_file import AnswerFile
from surefoot.server.batch.checksummed import verified, with_checksum
from surefoot.server.batch.input_lines import MAX_LEVELS, MAX_LINE_BYTES, BatchLine, read_lines
from surefoot.server.batch.records import Records, page
from surefoot.server.batch.run_batch import run_batch
from surefoot.server.batch.state import StateFolder
from surefoot.server.batch.storage import answer_ids
from surefoot.server.errors import ApiError
from surefoot.server.schemas.batches import FileRecord
from tests.faults.scenario import OWNER, Place, answers_in, deep, line, opened, text_of, until
from tests.stories import stories_gguf

Work = Callable[[Place], Awaitable[Any]]
LINES = [line(number) for number in range(8)]


@functools.cache
def llm() -> LLM:
    return LLM(stories_gguf(), threads=1)


def inside(folder: Path, work: Work, **settings: Any) -> Any:
    """A server's life, from its start to its end."""

    async def live() -> Any:
        async with opened(folder, llm(), **settings) as place:
            return await work(place)

    return asyncio.run(live())


def ends(batch: str) -> Work:
    async def work(place: Place) -> tuple[Any, dict[str, Any]]:
        record = await place.ended(batch)
        return record, place.answers(record)

    return work


def runs(data: bytes) -> Work:
    async def work(place: Place) -> tuple[Any, dict[str, Any]]:
        return await ends(await place.begin(data))(place)

    return work


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


# ---- lines ----


def test_a_deep_line_gets_an_error_of_its_own(tmp_path: Path) -> None:
    data = text_of(LINES[:1]) + deep(1, 100_000) + deep(2, MAX_LEVELS + 1) + text_of([line(3)])
    record, answers = inside(tmp_path / "state", runs(data))
    assert (record.status, record.request_counts.completed, record.request_counts.failed) == ("completed", 2, 2)
    for name in ("line-1", "line-2"):
        assert answers[name]["response"]["status_code"] == 400
        assert "levels deep" in answers[name]["response"]["body"]["error"]["message"]
    (tmp_path / "in.jsonl").write_bytes(data)
    run_batch(llm(), tmp_path / "in.jsonl", tmp_path / "out.jsonl", "small")
    assert answers_in((tmp_path / "out.jsonl").read_bytes()) == answers


def test_a_deep_line_without_a_name_is_no_batch(tmp_path: Path) -> None:
    for text in (b"[" * 100_000, b'{"a": ' * 5000 + b"1" + b"}" * 5000, b'{"custom_id": [' + b"[" * 5000):
        record, _ = inside(tmp_path / "state", runs(text))
        assert (record.status, record.errors["data"][0]["code"]) == ("failed", "invalid_file")
        assert "custom_id" in record.errors["data"][0]["message"]


def test_levels_are_counted_outside_strings(tmp_path: Path) -> None:
    many = line(1, messages=[{"role": "user", "content": '[{"\\' * 300}] * 2, tools=[{"a": [{}] * 200}])
    (tmp_path / "in.jsonl").write_bytes(text_of([many]) + deep(2, MAX_LEVELS - 2) + deep(3, MAX_LEVELS - 1))
    first, at_most, beyond = read_lines(tmp_path / "in.jsonl")
    assert (first.content, first.problem) == (many, None)
    assert at_most.problem is None
    assert beyond.problem is not None
    assert (beyond.custom_id, beyond.content["url"]) == ("line-3", line(3)["url"])


def test_a_line_of_too_many_bytes_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = b'{"custom_id": "line-1", "body": ['
    flat = (head + b"[]," * (MAX_LINE_BYTES // 3))[: MAX_LINE_BYTES - 2]  # brackets side by side
    parsed: list[int] = []
    monkeypatch.setattr(input_lines, "_parse", lambda text: parsed.append(len(text)) or ({"custom_id": "line-1"}, None))
    (tmp_path / "in.jsonl").write_bytes(flat + b"]}")
    assert [line.number for line in read_lines(tmp_path / "in.jsonl")] == [1]
    (tmp_path / "in.jsonl").write_bytes(flat + b" ]}")
    with pytest.raises(ValueError, match=f"line 1 has {MAX_LINE_BYTES + 1} bytes"):
        list(read_lines(tmp_path / "in.jsonl"))
    assert parsed == [MAX_LINE_BYTES]


# ---- answers ----


def one_line(tmp_path: Path, number: int) -> BatchLine:
    (tmp_path / "one.jsonl").write_bytes(text_of([line(number)]))
    return next(read_lines(tmp_path / "one.jsonl"))


def test_any_changed_byte_of_an_answer_shows() -> None:
    whole = with_checksum({"id": "batch_req_1", "text": 'ä "checksum": "', "list": [1.5, None]})
    assert verified(whole) == {"id": "batch_req_1", "text": 'ä "checksum": "', "list": [1.5, None]}
    assert json.loads(whole)["list"] == [1.5, None]
    for at in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            assert verified(bytes(changed)) is None
    assert all(verified(whole[:cut]) is None for cut in range(len(whole)))


def test_damaged_answers_are_given_again(tmp_path: Path) -> None:
    """run-batch: wherever a byte is changed, a line doubled or the end torn, the file is whole after another run."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(text_of(LINES[:3]))
    run_batch(llm(), source, target, "small")
    data, whole = target.read_bytes(), answers_in(target.read_bytes())
    first, second, third = data.splitlines(keepends=True)
    for raw, num_left in (
        *((first[:at] + bytes([first[at] ^ 4]) + first[at + 1 :] + second + third, 1) for at in range(0, 200, 17)),
        (first[:-1] + b"!" + second + third, 2),  # two lines have become one
        (first + second + second + third, 0),
        (first + second + third + first, 0),
        (first + b"\0" * len(second) + third, 2),
        (first + second + b"\0" * 4096, 1),
        (b"\0" * 4096, 3),
        (first + second[:30] + b"\n" + second + third[:-1], 1),
    ):
        target.write_bytes(raw)
        assert run_batch(llm(), source, target, "small") == num_left
        assert answers_in(target.read_bytes()) == whole
        assert run_batch(llm(), source, target, "small") == 0


def test_what_is_no_batch_output_is_left_as_it_is(tmp_path: Path) -> None:
    for text in ("precious", "precious\n", '{"a": "b"}\n{"c": "d"}', '{"id": 1, "custom_id": "line-0"}\n', "\n"):
        (tmp_path / "notes").write_text(text)
        with pytest.raises(ValueError, match="something else"):
            AnswerFile(tmp_path / "notes", {})
        assert (tmp_path / "notes").read_text() == text
    with pytest.raises(ValueError, match="not a file"):
        AnswerFile(Path("/dev/zero"), {})


def test_damaged_lines_are_kept_beside(tmp_path: Path) -> None:
    asked = one_line(tmp_path, 1)
    ids = {asked.custom_id: asked.id}
    with AnswerFile(tmp_path / "out", ids) as answers:
        answers.write(asked, 200, {})
        answers.write(asked, 200, {})
    damaged = (tmp_path / "out").read_bytes().replace(b"200", b"201")
    assert damaged.count(b"\n") == 1
    (tmp_path / "out").write_bytes(damaged)
    with AnswerFile(tmp_path / "out", ids) as answers:
        assert not answers.done
    assert (tmp_path / "out.damaged").read_bytes() == damaged
    assert (tmp_path / "out").read_bytes() == b""


def test_a_batch_goes_on_over_damaged_answers(tmp_path: Path) -> None:
    _, peaceful = inside(tmp_path / "peaceful", runs(text_of(LINES)))

    async def begin(place: Place) -> str:
        batch = await place.begin(text_of(LINES))
        await until(lambda: place.batches.get(OWNER, batch).request_counts.completed >= 3)
        return batch

    batch = inside(tmp_path / "state", begin)
    good, bad = (tmp_path / "state" / "state-2" / "files" / f"{name}.jsonl" for name in answer_ids(batch))
    flip(good, 100)
    last = good.read_bytes().splitlines(keepends=True)[-1]
    good.write_bytes(good.read_bytes() + last)
    bad.write_bytes(last)  # and in the other file too
    record, answers = inside(tmp_path / "state", ends(batch))
    assert (record.status, record.error_file_id) == ("completed", None)
    assert answers == peaceful


def test_a_finished_file_of_answers_is_made_again(tmp_path: Path) -> None:
    record, peaceful = inside(tmp_path / "state", runs(text_of(LINES)))

    async def read(place: Place) -> dict[str, Any]:
        output = place.files.get(OWNER, record.output_file_id)
        for harm in (lambda path: flip(path, 200), lambda path: path.unlink(), lambda path: path.write_bytes(b"")):
            harm(place.files.path(output.id))
            with pytest.raises(ApiError, match="being made again") as refused:
                await place.files.check(output)
            assert refused.value.status == 503
            made = await place.ended(record.id)
            await place.files.check(place.files.get(OWNER, output.id))
            assert place.answers(made) == peaceful
        return peaceful

    inside(tmp_path / "state", read)


def test_a_damaged_input_is_told(tmp_path: Path) -> None:
    async def work(place: Place) -> Any:
        file = await place.upload(text_of(LINES))
        flip(place.files.path(file), 50)
        with pytest.raises(ApiError, match="damaged"):
            await place.files.check(place.files.get(OWNER, file))
        return await place.ended(await place.create(file))

    record = inside(tmp_path / "state", work)
    assert record.status == "failed"
    assert "upload it again" in record.errors["data"][0]["message"]


# ---- records ----


def file_record(number: int) -> FileRecord:
    return FileRecord(
        id=f"file-{number}", owner="alice", created_at=number, bytes=3, filename="ä", purpose="batch", sha256=""
    )


def test_a_changed_byte_of_a_record_is_mended(tmp_path: Path) -> None:
    record = file_record(1)
    Records(tmp_path, FileRecord).save(record)
    path = tmp_path / "file-1.record"
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
        flip(path, at)
        assert list(Records(tmp_path, FileRecord)) == [record]
        assert path.read_bytes() == whole
    path.write_bytes(whole[: len(whole) // 2 + 9])
    assert list(Records(tmp_path, FileRecord)) == [record]


def test_a_page_says_where_it_lies() -> None:
    records = [file_record(number) for number in range(3)]
    assert page(records, None, 2) == (
        records[:0:-1],
        {"has_more": True, "first_id": "file-2", "last_id": "file-1"},
    )
    last = {"has_more": False, "first_id": "file-2", "last_id": "file-2"}
    assert page(records, "file-1", 2, "asc") == (records[2:], last)
    assert page(records, "file-0", 2) == ([], {"has_more": False})


def test_a_record_that_cannot_be_mended_is_set_aside(tmp_path: Path) -> None:
    """The user sees that it failed, and the next batch runs."""

    async def begin(place: Place) -> str:
        return await place.begin(text_of(LINES))

    batch = inside(tmp_path / "state", begin)
    path = tmp_path / "state" / "state-2" / "batches" / f"{batch}.record"
    path.write_bytes(path.read_bytes().replace(b"expires_at", b"expires_et"))

    async def work(place: Place) -> tuple[Any, Any]:
        return place.batches.get(OWNER, batch), (await runs(text_of(LINES[:2]))(place))[0]

    for _ in range(2):
        lost, another = inside(tmp_path / "state", work)
        assert (lost.status, lost.errors["data"][0]["code"]) == ("failed", "record_damaged")
        assert another.status == "completed"
    assert path.with_name(path.name + ".damaged").exists()


def test_a_folder_of_an_older_version_is_left_alone(tmp_path: Path) -> None:
    for name in ("batches/batch_1.json", "files/file-1.json", "files/file-1.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    record, _ = inside(tmp_path, runs(text_of(LINES[:1])))
    assert record.status == "completed"
    assert sorted(path.name for path in tmp_path.glob("*/*.json*")) == ["batch_1.json", "file-1.json", "file-1.jsonl"]


# ---- disks that fail ----


def test_a_disk_that_fails_too_long_fails_the_batch_alone(tmp_path: Path) -> None:
    """Before that, the batch says what it waits for. Here a folder stands where a file should."""

    async def work(place: Place) -> tuple[Any, Any, Any]:
        file = await place.upload(text_of(LINES))
        batch = await place.create(file)
        for name in answer_ids(batch):
            place.files.path(name).mkdir()
        await until(lambda: place.batches.get(OWNER, batch).errors is not None)
        waiting = place.batches.get(OWNER, batch)
        return waiting, await place.ended(batch), await place.ended(await place.create(file))

    waiting, failed, after = inside(tmp_path / "state", work, disk_patience_s=0.5)
    assert waiting.errors["data"][0]["code"] == failed.errors["data"][0]["code"] == "storage_unavailable"
    assert (waiting.status, failed.status, after.status) == ("in_progress", "failed", "completed")


def test_a_batch_waits_for_the_disk_and_goes_on(tmp_path: Path) -> None:
    async def work(place: Place) -> tuple[Any, dict[str, Any]]:
        file = await place.upload(text_of(LINES))
        folder, away = tmp_path / "state" / "state-2", tmp_path / "away"
        batch = await place.create(file)
        folder.rename(away)
        await until(lambda: place.batches.get(OWNER, batch).errors is not None)
        with pytest.raises(ApiError) as refused:
            await place.upload(b"x")
        assert (refused.value.status, refused.value.code) == (503, "storage_unavailable")
        away.rename(folder)
        return await ends(batch)(place)

    record, answers = inside(tmp_path / "state", work)
    assert (record.status, record.errors, len(answers)) == ("completed", None, len(LINES))


# ---- shares of the disk ----


def test_a_user_leaves_room_for_others(tmp_path: Path) -> None:
    """As many bytes as a user holds are left: whoever comes next has room, however many have come before."""

    async def fill(place: Place, owner: str) -> int:
        with contextlib.suppress(ApiError):
            for _ in range(100):
                await place.upload(b"x" * 1000, owner)
        with pytest.raises(ApiError, match="delete some") as refused:
            await place.upload(b"x" * 1000, owner)
        assert (refused.value.status, refused.value.code) == (413, "storage_share")
        return sum(record.bytes for record in place.files.of(owner))

    async def work(place: Place) -> list[int]:
        return [await fill(place, owner) for owner in ("alice", "bob", "carol")]

    assert inside(tmp_path / "state", work, max_bytes=20_000) == [10_000, 5_000, 2_000]


def test_new_files_of_others_do_not_stop_a_running_batch(tmp_path: Path) -> None:
    async def work(place: Place) -> None:
        for owner, size in (("alice", 9_000), ("bob", 5_000)):
            await place.upload(b"x" * size, owner)
        with pytest.raises(ApiError, match="may take 7500 bytes here and would take 9000"):
            place.files.check_room("alice")
        place.files.check_room("alice", is_running=True)
        place.files.growing["answers"] = "alice", 1_001
        with pytest.raises(ApiError, match="may take 10000 bytes here and would take 10001"):
            place.files.check_room("alice", is_running=True)

    inside(tmp_path / "state", work, max_bytes=20_000)


def test_answers_count_too(tmp_path: Path) -> None:
    data = text_of(LINES)

    async def work(place: Place) -> Any:
        return await place.ended(await place.begin(data, "alice"), "alice")

    record = inside(tmp_path / "state", work, max_bytes=2 * len(data) + 4000)
    assert (record.status, record.errors["data"][0]["code"]) == ("failed", "storage_share")
    assert 0 < record.request_counts.completed < len(LINES)
    assert record.output_file_id is not None


def test_the_room_is_measured(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    free = shutil.disk_usage(tmp_path).free
    assert 0.05 * free < state.max_bytes < 0.2 * free
    state.close()
