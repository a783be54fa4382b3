"""How much of prompts a step may still read."""

from dataclasses import dataclass

from surefoot.core import BAND_ROWS

DEAREST_FILLED = 1.5  # what a token costs at most, in rows, for a band to be filled beyond the budget


@dataclass
class Budget:
    """tokens: counted as if none came before them; one with row_context tokens before it counts as two. least: of them,
    that it reads in any case. least_rows: tokens that it reads in any case, whatever comes before them. room: that it
    can read at most. num_rows: that the step has, with those who decode."""

    tokens: float
    least: float
    least_rows: int
    room: int
    num_rows: int
    row_context: float

    @property
    def is_spent(self) -> bool:
        return self.room < 1 or max(self.tokens, self.least, self.least_rows) < 1

    def size(self, start: int, num_left: int) -> int:
        """Of a chunk. A band of rows costs nearly the same however full it is, so a chunk that is not its prompt's last
        ends with one: with the one above where the least chunk would not fit below, unless much comes before it."""
        price = self._price(start)
        least = max(int(self.least / price), self.least_rows, int(self.least > 0))
        wanted = min(max(int(self.tokens / price), least), self.room)
        if num_left <= wanted:
            return num_left
        below = wanted - (self.num_rows + wanted) % BAND_ROWS
        is_filled = price < DEAREST_FILLED
        if below >= max(least if is_filled else 1, 1):
            return below
        if least and is_filled:
            return min(below + BAND_ROWS, num_left, self.room)
        return wanted if least or self.num_rows % BAND_ROWS else 0

    def spend(self, start: int, num_tokens: int) -> None:
        cost = num_tokens * self._price(start)
        self.tokens -= cost
        self.least = max(0.0, self.least - cost)
        self.least_rows = max(0, self.least_rows - num_tokens)
        self.room -= num_tokens
        self.num_rows += num_tokens

    def _price(self, start: int) -> float:
        return 1.0 + start / self.row_context
