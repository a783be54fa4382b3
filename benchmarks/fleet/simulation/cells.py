"""A fleet too large for one router: cells of machines, each with a router of its own, and users spread over them.

A cell is a fleet by itself. A user's home is the cell with the highest hash of user and cell, so that gateways agree
without talking, and a cell that goes or comes moves its own users alone. Nothing else is shared.
"""

import hashlib
from collections.abc import Sequence


def home_cell(user: str, cells: Sequence[str]) -> int:
    """The number of the user's cell."""

    def weight(number: int) -> bytes:
        return hashlib.blake2b(f"{cells[number]}\0{user}".encode(errors="surrogatepass"), digest_size=8).digest()

    return max(range(len(cells)), key=weight)
