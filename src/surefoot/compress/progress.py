"""How far the work has come, for whoever looks on."""

from collections.abc import Callable

Say = Callable[[str, int, int], None]  # what is being done, steps done, steps in all
Advance = Callable[[], None]  # a step of it is done


def counted(say: Say, what: str, total: int) -> Advance:
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        say(what, done, total)

    say(what, 0, total)
    return advance
