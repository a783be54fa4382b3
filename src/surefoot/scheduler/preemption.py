"""Preemption: sends a sample back to the queue so that another gets its blocks or its row."""

from surefoot.core import ServiceClass
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.queue import PromptQueue
from surefoot.scheduler.rows import PlannedStep, RunningSamples
from surefoot.scheduler.sample import Sample, State


class Preemption:
    """Chooses victims and preempts them.

    Blocks are taken by rank: from the least urgent sample, and of equals from the youngest. Rows are taken by fair
    share: from the user furthest above theirs.
    """

    def __init__(self, config: SchedulerConfig, running: RunningSamples, queue: PromptQueue) -> None:
        self.num_preemptions = 0
        self._config = config
        self._running = running
        self._queue = queue

    def preempt(self, sample: Sample, step: PlannedStep | None = None) -> None:
        """Send the sample back to the queue, without blocks. step: the step that is being planned, if any."""
        self._running.leave(sample, State.WAITING)
        self._running.blocks.release(sample)
        sample.drafts = ()
        self._queue.enqueue(sample)
        self.num_preemptions += 1
        if step is not None:
            step.preempted.add(sample)
            self._queue.skip(sample)

    # ---- blocks ----

    def grow(self, step: PlannedStep, sample: Sample, num_tokens: int) -> bool:
        """Allocate blocks for `num_tokens` tokens in all, by preempting other samples if need be.

        The oldest sample is never preempted, and no sample is preempted for one of higher rank.
        """
        while not self._running.blocks.grow(step, sample, num_tokens):
            victim = self._next_victim(step)
            if victim is None or (sample is not step.oldest and victim.rank <= sample.rank):
                return False
            self.preempt(victim, step)
        return True

    def _next_victim(self, step: PlannedStep) -> Sample | None:
        if step.victims is None:
            samples = self._running.all
            step.oldest = min(samples, key=lambda sample: sample.age)
            others = (sample for sample in samples if sample is not step.oldest)
            step.victims = sorted(others, key=lambda sample: sample.rank)
        while step.victims and step.victims[-1].state in (State.WAITING, State.ENDED):
            step.victims.pop()
        return step.victims[-1] if step.victims else None

    # ---- rows ----

    def free_row(self, step: PlannedStep) -> Sample | None:
        """If all rows are taken, free one for a waiting sample and return that sample.

        An interactive sample takes a row from a batch sample. A user who would hold at most half of their fair share
        (or one row) takes a row from the user furthest above theirs. The threshold is half, so that users who always
        have work do not preempt each other again and again: the order of admission decides between them.
        """
        if not self._running.is_full or not self._queue.waiting:
            return None
        for waiting in self._queue.candidates(self._config.num_candidates, self._config.slack_tokens):
            if waiting.state is not State.WAITING:
                continue
            while (victim := self._row_victim(waiting)) is not None and self._has_blocks_for(waiting):
                self.preempt(victim, step)
                if self._running.has_row_for(waiting):
                    return waiting
        return None

    def _has_blocks_for(self, sample: Sample) -> bool:
        return self._running.has_blocks_for(sample, self._running.blocks.match(sample))

    def _row_victim(self, waiting: Sample) -> Sample | None:
        """The youngest sample of the user who must yield; never a user's oldest, so that every user advances."""
        running = self._running
        if waiting.request.service is ServiceClass.INTERACTIVE and running.num_batch > 1:
            return max((sample for sample in running.all if sample.is_batch), key=lambda sample: sample.age)
        num_rows = waiting.user.num_rows + len(waiting.sample_numbers)
        if num_rows > max(1.0, running.fair_share(waiting.user) / 2):
            return None
        user = running.largest_holder()
        if user is None or user.num_rows <= max(1.0, running.fair_share(user)):
            return None
        samples = sorted((sample for sample in running.all if sample.user is user), key=lambda sample: sample.age)
        return samples[-1] if len(samples) > 1 and samples[-1].precedence >= waiting.precedence else None
