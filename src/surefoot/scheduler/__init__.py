"""Who runs in a step, and for how many tokens."""

from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.limits import Refused
from surefoot.scheduler.scheduler import Scheduler

__all__ = ["Refused", "Scheduler", "SchedulerConfig"]
