"""Where planner and runner meet: schedule, execute, commit."""

from surefoot.engine.engine import Engine, Event, Planner, Times, Usage

__all__ = ["Engine", "Event", "Planner", "Times", "Usage"]
