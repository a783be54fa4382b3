"""A scheduler that sends requests back to wait for no reason."""

import random

from surefoot.core import StepPlan
from surefoot.kv import KvManager
from surefoot.scheduler import Scheduler, SchedulerConfig


class HostileScheduler(Scheduler):
    """Every so many steps it preempts half of those who run. Who has nothing new since the last time is spared, or
    nobody would ever end."""

    def __init__(self, config: SchedulerConfig, kv: KvManager, preempt_every: int) -> None:
        super().__init__(config, kv)
        self._every = preempt_every
        self._rng = random.Random(preempt_every)
        self._lengths: dict[object, int] = {}

    def schedule(self, now: float = 0.0) -> StepPlan:
        if self._num_steps % self._every == self._every - 1:
            for sample in [*self._prefilling, *self._decoding]:
                length = len(sample.tokens)
                if self._rng.random() < 0.5 and self._lengths.get(sample.key) != length:
                    self._lengths[sample.key] = length
                    self.preempt(sample.key)
        return super().schedule(now)
