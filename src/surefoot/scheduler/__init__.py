"""Who runs in a step, and for how many tokens."""

from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.scheduler import Refused, Scheduler

__all__ = ["Refused", "Scheduler", "SchedulerConfig"]
