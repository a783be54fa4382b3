"""Reads what is asked of a machine: "20 users, 8B, 5 tokens/s each"."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from surefoot.plan.planning import ServiceLevel
from surefoot.plan.shapes import find_shape, known_shapes, make_header

NUMBER = r"(\d+(?:\.\d+)?)"
EXAMPLE = '"20 users, 8B, 5 tokens/s each, prompts of 2000, answers of 300, first token in 5 s"'


@dataclass(frozen=True)
class Wish:
    """What is asked of a machine."""

    num_users: int = 1
    model: str = ""  # a shape's name, with or without a format; "": none was named
    service: ServiceLevel = field(default_factory=ServiceLevel)


def _service(**changed: Any) -> Callable[[Wish], Wish]:
    return lambda wish: replace(wish, service=replace(wish.service, **changed))


# Each kind of part, and what its number changes.
PARTS: tuple[tuple[str, Callable[[float], Callable[[Wish], Wish]]], ...] = (
    (rf"{NUMBER} users?", lambda number: lambda wish: replace(wish, num_users=int(number))),
    (rf"{NUMBER} tokens?(?:/s| a second| per second)(?: each)?", lambda number: _service(tokens_per_second=number)),
    (rf"prompts? of {NUMBER}(?: tokens)?", lambda number: _service(prompt_tokens=int(number))),
    (rf"answers? of {NUMBER}(?: tokens)?", lambda number: _service(answer_tokens=int(number))),
    (rf"first token (?:in|within|after) {NUMBER} ?s(?:econds)?", lambda number: _service(first_token_s=number)),
    (rf"pauses? of {NUMBER} ?s(?:econds)?", lambda number: _service(pause_s=number)),
    (rf"{NUMBER} tokens shared", lambda number: _service(shared_tokens=int(number))),
)


def read_wish(text: str) -> Wish:
    """Raises ValueError for a part that is not understood."""
    wish = Wish()
    for part in filter(None, (part.strip() for part in text.lower().split(","))):
        wish = _read_part(part)(wish)
    if wish.num_users < 1 or wish.service.prompt_tokens < 1 or wish.service.answer_tokens < 2:
        raise ValueError("at least one user, a token of prompt and two tokens of answer")
    return wish


def _read_part(part: str) -> Callable[[Wish], Wish]:
    for pattern, change in PARTS:
        if match := re.fullmatch(pattern, part):
            return change(float(match[1]))
    if match := re.fullmatch(rf"{NUMBER} ?b(?::(\w+)|(?: at)? (\d) bits?)?", part):
        model = nearest_shape(float(match[1]) * 1e9)
        fmt = match[2] or {"8": "q8_0", "4": "q4_k_m"}.get(match[3] or "", "")
        return lambda wish: replace(wish, model=f"{model}:{fmt}" if fmt else model)
    if find_shape(part):
        return lambda wish: replace(wish, model=part)
    raise ValueError(f"{part!r} is not understood: say it like {EXAMPLE}")


def nearest_shape(num_weights: float) -> str:
    """The dense shape whose number of weights is nearest."""
    dense = [shape for shape in known_shapes().values() if shape.is_dense]
    counts = {
        shape.name: sum(math.prod(info.shape) for info in make_header(shape, "").tensors.values()) for shape in dense
    }
    return min(counts, key=lambda name: abs(math.log(counts[name] / num_weights)))
