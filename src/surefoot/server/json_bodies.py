"""JSON bodies: bounded before they are parsed, and read on another thread if they are large.

A parser holds the GIL, so a thread alone does not keep the event loop free: the bounds of `core/json_bounds.py` do.
"""

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from surefoot.core.json_bounds import json_excess
from surefoot.server.access.shares import Turns
from surefoot.server.errors import ApiError, bad_request, of_validation

MOST_BYTES_ON_LOOP = 64 << 10
T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)


class BodyWork:
    """Runs work whose time grows with a body: beyond 64 KiB on another thread, users in turns."""

    def __init__(self) -> None:
        self._turns = Turns(1)

    async def run(self, num_bytes: int, work: Callable[[], T]) -> T:
        """What the work returns. num_bytes: length of the body."""
        if num_bytes <= MOST_BYTES_ON_LOOP:
            return work()
        async with self._turns.turn():
            return await asyncio.to_thread(work)


def parse_json(body: bytes) -> Any:
    """Raises ApiError if the body is not JSON in UTF-8, or holds more than a server parses."""
    excess = json_excess(body) if len(body) > MOST_BYTES_ON_LOOP else None
    if excess is not None:
        raise ApiError(413, f"the body has {excess}: send less", code="body_too_complex")
    try:
        return json.loads(body.removeprefix(BOM_UTF8).decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise bad_request("the body is not JSON: send one JSON object", code="invalid_json") from error


def validate(kind: type[Model], value: Any) -> Model:
    """Raises ApiError, for the first of the errors."""
    return translated(lambda: kind.model_validate(value))


def translated(make: Callable[[], T]) -> T:
    """What `make` makes of a client's request. Raises ApiError in place of pydantic's error."""
    try:
        return make()
    except ValidationError as error:
        raise of_validation(error.errors(include_url=False, include_input=False)) from None
