"""Whether a request may leave for an upstream: a pure function of what it declares and what was found in it.

Whatever is unknown, undeclared or failing means that it stays. Load and failures are no arguments. What is left of a
budget is one, since it can only make a request stay.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from surefoot.front.prices import MostTokens, Price

SENSITIVITY_HEADER = "x-surefoot-sensitivity"


class Privacy(IntEnum):
    """Larger is more private."""

    PUBLIC = 0
    INTERNAL = 1
    PRIVATE = 2  # never leaves


SENSITIVITIES = {level.name.lower(): level for level in Privacy}


def declared_by(values: Sequence[str]) -> Privacy:
    """values: of the request's header, one for each time that it is there."""
    return SENSITIVITIES.get(values[0], Privacy.PRIVATE) if len(values) == 1 else Privacy.PRIVATE


@dataclass(frozen=True)
class Upstream:
    """Another server with OpenAI's API, which may answer requests of some sensitivity."""

    name: str
    url: str  # of its API, such as https://api.example.org/v1
    model: str  # its name there
    allows: Privacy  # the most private that may leave for it
    key_env: str | None = None  # the environment variable that holds the key; None: none is sent
    pause_s: float = 60.0  # the longest between two parts of its reply
    price: Price | None = None  # None: it costs nothing

    def most(self, tokens: MostTokens | None) -> int | None:
        """What a request may cost at most. None: there is no bound."""
        return 0 if self.price is None else self.price.most(tokens)


@dataclass(frozen=True)
class Findings:
    """What is known of one request. Each of the three levels can only make it more private."""

    declared: Privacy = Privacy.PRIVATE
    detected: Privacy = Privacy.PUBLIC  # by patterns
    past: Privacy = Privacy.PUBLIC  # of earlier requests with the same conversation or one of its messages
    obstacle: str | None = None  # why it could not be checked, or an upstream could not answer it

    @property
    def level(self) -> Privacy:
        return max(self.declared, self.detected, self.past)


@dataclass(frozen=True)
class ExaminedRequest:
    """A request as far as upstreams are concerned."""

    found: Findings
    path: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)  # of the body, that may be sent
    messages: tuple[str, ...] = ()  # their texts
    most_tokens: MostTokens | None = None  # None: there is no bound


@dataclass(frozen=True)
class Verdict:
    leaves: bool
    rule: str  # the one that decided


def decide(
    found: Findings, upstream: Upstream, by_key: Collection[str], by_route: Collection[str], most: int | None, left: int
) -> Verdict:
    """by_key, by_route: names of the upstreams that the caller's key and the route allow. most: what the answer may
    cost; None: there is no bound. left: of the key's budget for today."""
    allowed = min(upstream.allows, Privacy.INTERNAL)
    conditions = {
        "route": upstream.name in by_route,
        "key": upstream.name in by_key,
        found.obstacle: found.obstacle is None,
        "declaration": found.declared <= allowed,
        "pattern": found.detected <= allowed,
        "conversation": found.past <= allowed,
        "budget": most is not None and most <= left,
    }
    broken = next((rule for rule, holds in conditions.items() if rule is not None and not holds), None)
    return Verdict(True, found.declared.name.lower()) if broken is None else Verdict(False, broken)
