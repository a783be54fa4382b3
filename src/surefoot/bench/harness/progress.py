"""The status line of a benchmark while it runs."""

from collections.abc import Callable

Say = Callable[[str], None]  # shows one line in place of the last


def progress(number: int, done: int, total: int) -> str:
    return f"{'warming up' if number == 0 else f'round {number}'}: {done} of {total} cases"
