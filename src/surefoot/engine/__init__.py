"""Where planner and runner meet: schedule, execute, commit."""

from surefoot.engine.engine import Engine, Event, Planner, Times, Usage
from surefoot.engine.fifo import FifoConfig, FifoPlanner, Refused

__all__ = ["Engine", "Event", "FifoConfig", "FifoPlanner", "Planner", "Refused", "Times", "Usage"]
