"""Plans steps: which requests run in a step, and for how many tokens."""

from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.requests import RequestRefused
from surefoot.scheduler.scheduler import Scheduler

__all__ = ["RequestRefused", "Scheduler", "SchedulerConfig"]
