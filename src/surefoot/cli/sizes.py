"""Options that take bytes or a time, as people write them."""

from collections.abc import Callable
from typing import Any

import typer
from pydantic_core import PydanticCustomError

from surefoot.machine.sizes import duration_s, size_bytes

SIZE, TIME = "SIZE", "TIME"


def size_option(help_: str, *names: str, at_least: int = 0, **more: Any) -> Any:
    """An option whose value is a number of bytes: 20GB, 512MiB or 4194304."""
    return typer.Option(*names, parser=_reader(size_bytes, at_least, "bytes"), metavar=SIZE, help=help_, **more)


def time_option(help_: str, *names: str, at_least: float = 0.0, unit: str = "s", **more: Any) -> Any:
    """An option whose value is a number of seconds: 90s, 30m, 2h or 90. unit: of a number without one."""
    reader = _reader(lambda text: duration_s(text, unit), at_least, "s")
    return typer.Option(*names, parser=reader, metavar=TIME, help=help_, **more)


def _reader(parse: Callable[[str], float], at_least: float, unit: str) -> Callable[[str], float]:
    def read(given: str) -> float:  # a default is a number
        try:
            value = parse(str(given))
            if value < at_least:
                raise ValueError(f"{given!r} is less than {at_least:g} {unit}")
        except ValueError as error:
            # A plain ValueError is shown to the user as "Value error, ...".
            raise PydanticCustomError("option", "{error}", {"error": str(error)}) from None
        return value

    return read


def format_size(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"
