"""What a server adds to be one of a fleet. `join_fleet` is all that others call; a lone server makes none of it."""

from surefoot.fleet.replica.middleware import join_fleet

__all__ = ["join_fleet"]
