"""The key that a fleet's gateways and servers share."""

from pathlib import Path

LEAST_CHARACTERS = 16


def read_fleet_key(file: Path) -> str:
    key = file.read_text(encoding="utf-8").strip()
    if len(key) < LEAST_CHARACTERS:
        raise ValueError(f"{file}: the fleet's key must have at least {LEAST_CHARACTERS} characters")
    return key
