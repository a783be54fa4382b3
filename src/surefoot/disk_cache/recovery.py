"""Opening the index: brought up to date with the segments, or made anew from them."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from surefoot.disk_cache.index import INDEX_ERRORS, TICK, BlockIndex, remove_index, scanned
from surefoot.disk_cache.segments import SegmentFiles


@dataclass(frozen=True)
class OpenedIndex:
    index: BlockIndex
    tick: int  # the store's counter when the index was written last
    num_blocks: int
    num_failed: int  # segments that could not be read to their end


def open_index(files: SegmentFiles, folder: Path) -> OpenedIndex:
    """An index that is damaged is made anew."""
    with suppress(*INDEX_ERRORS):
        return _updated(files, folder)
    remove_index(folder)
    return _updated(files, folder)


def _updated(files: SegmentFiles, folder: Path) -> OpenedIndex:
    index = BlockIndex(folder)
    try:
        tick = int(index.fact(TICK, "0"))
        num_failed = _read_segments(index, files, tick)
        return OpenedIndex(index, tick, index.num_blocks(), num_failed)
    except BaseException:
        index.close()
        raise


def _read_segments(index: BlockIndex, files: SegmentFiles, tick: int) -> int:
    """A killed process has written more, or less, than its index says. Returns the number of failed reads."""
    indexed, num_failed = index.indexed_bytes(), 0
    with index.changing():
        for number in indexed.keys() - files.sizes.keys():
            index.drop_segment(number)
        for number, size in sorted(files.sizes.items()):
            known = indexed.get(number, 0)
            if size < known:
                index.drop_beyond(number, size)
            if size != known:
                num_failed += not _index_tail(index, files, number, known if known < size else 0, tick)
    return num_failed


def _index_tail(index: BlockIndex, files: SegmentFiles, number: int, offset: int, tick: int) -> bool:
    """Index the records from an offset on; False if a read failed.

    A torn record at the end is removed, since others will follow there. After a read that failed, nothing is.
    """
    try:
        for record in files.scan(number, offset):
            index.add(scanned([record], number), tick)
            offset = record[0] + record[1].record_bytes
    except OSError:
        files.leave_alone(number)
        index.set_indexed(number, offset)
        return False
    if number == files.last and offset < files.sizes[number]:
        files.cut(number, offset)
    index.set_indexed(number, files.sizes[number])
    return True
