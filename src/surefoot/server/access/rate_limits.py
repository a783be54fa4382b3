"""The rates of all keys under one name each, as a fleet's gateways know them: by the key's hash, not by the key."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from surefoot.server.access.key_file import KeyEntry


def requests_rate(key_hash: str) -> str:
    return f"requests {key_hash}"


def tokens_rate(key_hash: str) -> str:
    return f"tokens {key_hash}"


@dataclass(frozen=True)
class RateLimits:
    """Limits per minute by the rates' names."""

    version: str  # differs whenever a limit differs
    per_minute: Mapping[str, float]

    @classmethod
    def of(cls, entries: Iterable[KeyEntry]) -> "RateLimits":
        """Rates without a limit are left out."""
        rates = (
            rate
            for entry in entries
            for rate in (
                (requests_rate(entry.hash), entry.requests_per_minute),
                (tokens_rate(entry.hash), entry.tokens_per_minute),
            )
        )
        limits = {name: per_minute for name, per_minute in sorted(rates) if per_minute is not None}
        return cls(hashlib.sha256(json.dumps(limits).encode()).hexdigest()[:16], limits)


NO_LIMITS = RateLimits.of(())
