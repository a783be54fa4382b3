"""Sizes and times as people write them."""

import re

UNITS = {
    "": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40,
}  # fmt: skip
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def size_bytes(text: str) -> int:
    """20GB, 512MiB, 1.5T or a number of bytes. Raises ValueError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", text, re.IGNORECASE)
    if found is None:
        raise ValueError(f"invalid size {text!r}: write it like 20GB or 512MiB")
    return int(float(found[1]) * UNITS[(found[2] or "").upper()])


def duration_s(text: str, unit: str = "s") -> float:
    """90, 90s, 10m, 1.5h or 2d. unit: of a number without one. Raises ValueError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    if found is None:
        raise ValueError(f"invalid time {text!r}: write it like 90s or 10m")
    return float(found[1]) * SECONDS[found[2] or unit]
