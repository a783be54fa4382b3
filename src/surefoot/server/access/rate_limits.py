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
    users: Mapping[str, str]  # by the rates' names

    @classmethod
    def of(cls, entries: Iterable[KeyEntry]) -> "RateLimits":
        """Rates without a limit are left out."""
        limits, users = dict[str, float](), dict[str, str]()
        for entry in sorted(entries, key=lambda entry: entry.hash):
            for name, per_minute in (
                (requests_rate(entry.hash), entry.requests_per_minute),
                (tokens_rate(entry.hash), entry.tokens_per_minute),
            ):
                if per_minute is not None:
                    limits[name], users[name] = per_minute, entry.user
        return cls(hashlib.sha256(json.dumps(limits).encode()).hexdigest()[:16], limits, users)


NO_LIMITS = RateLimits.of(())
