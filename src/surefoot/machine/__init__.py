"""What this process may really use of the machine: cores, memory, nodes. Standard library only."""

from surefoot.machine.limits import usable_cores

__all__ = ["usable_cores"]
