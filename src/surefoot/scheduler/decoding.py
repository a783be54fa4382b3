"""A step's first part: a token each for those whose prompts have been read, and their drafts."""

from surefoot.core import Chunk
from surefoot.scheduler.making_way import MakingWay
from surefoot.scheduler.room import Room
from surefoot.scheduler.rows import Rows
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.step import Step, make


class Decoding:
    def __init__(self, rows: Rows, room: Room, way: MakingWay) -> None:
        self._rows = rows
        self._room = room
        self._way = way

    def plan(self, step: Step) -> None:
        """Whoever gave way in the meantime is passed over."""
        samples, chunks, num_drafts = step.samples, step.chunks, 0
        for sample in list(self._rows.decoding):
            holding, tokens = sample.holding, (sample.tokens[-1],)
            start = holding.num_computed
            if start < sample.room and not sample.drafts:
                chunks.append(make(Chunk, (sample.key, start, tokens, holding.tables, 1, sample.covers)))
                samples.append(sample)
            elif self._grow(step, sample):
                drafted, num_logits = tokens + sample.drafts, 1 + len(sample.drafts)
                chunks.append(Chunk(sample.key, start, drafted, holding.tables, num_logits, sample.covers))
                samples.append(sample)
                num_drafts += len(sample.drafts)
        step.num_tokens = len(chunks) + num_drafts

    def _grow(self, step: Step, sample: Sample) -> bool:
        """Blocks for the next token and the drafts, for the token alone, or at last at the cost of others."""
        if sample.state is not State.DECODING:
            return False
        sample.drafts = sample.drafts[: sample.end - len(sample.tokens) - 1]
        if sample.drafts and self._room.grow(step, sample, sample.num_computed + 1 + len(sample.drafts)):
            return True
        sample.drafts = ()
        if self._way.grow_by_force(step, sample, sample.num_computed + 1):
            return True
        self._way.give_way(sample, step)
        return False
