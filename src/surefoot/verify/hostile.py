"""A scheduler that preempts requests without need."""

import random

from surefoot.core import StepPlan
from surefoot.kv import KvManager
from surefoot.scheduler import Scheduler, SchedulerConfig


class HostileScheduler(Scheduler):
    """Preempts half of the running requests every `preempt_every` steps. A request without a new token since its last
    preemption is spared, so that every request ends."""

    def __init__(self, config: SchedulerConfig, kv: KvManager, preempt_every: int) -> None:
        super().__init__(config, kv)
        self._every = preempt_every
        self._rng = random.Random(preempt_every)
        self._lengths: dict[object, int] = {}

    def schedule(self, now: float = 0.0) -> StepPlan:
        if self.num_steps % self._every == self._every - 1:
            for sample in self.running:
                length = len(sample.tokens)
                if self._rng.random() < 0.5 and self._lengths.get(sample.key) != length:
                    self._lengths[sample.key] = length
                    self.preempt(sample.key)
        return super().schedule(now)
