"""An index of n-grams: where the last tokens of a text occurred before."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

ORDERS = (4, 2)  # n: four tokens tell one occurrence from others, two find an occurrence at all
MAX_TRIED = 8  # occurrences of one n-gram that are compared, the latest first
MAX_MATCH = 32  # longer matches count as this long
BREAK = -1  # between texts: no token, so that no match and no draft crosses it


class Match(NamedTuple):
    """An earlier occurrence of a text's last tokens."""

    length: int  # tokens that are equal
    end: int  # index of the first token after the occurrence


class NgramIndex:
    """Tokens, and for each n-gram the end of its latest occurrence, from which a chain leads to earlier ones.

    Takes some 110 bytes a token, and two microseconds to add one.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.tokens: list[int] = []
        self._latest: tuple[dict[int, int], ...] = tuple({} for _ in ORDERS)
        self._previous: tuple[list[int], ...] = tuple([0] for _ in ORDERS)  # by end; 0: there is none
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        indexed = self.tokens
        for token in tokens:
            indexed.append(token)
            end = len(indexed)
            for order, latest, previous in zip(ORDERS, self._latest, self._previous, strict=True):
                if end < order:
                    previous.append(0)
                    continue
                ngram = hash(tuple(indexed[-order:]))  # `find` compares tokens, so a hash collision does no harm
                previous.append(latest.get(ngram, 0))
                latest[ngram] = end

    def find(self, text: Sequence[int]) -> Match | None:
        """The longest match of the text's end that has tokens after it; the latest of equally long matches."""
        for order, latest, previous in zip(ORDERS, self._latest, self._previous, strict=True):
            if len(text) < order:
                continue
            end = latest.get(hash(tuple(text[-order:])), 0)
            best = Match(order - 1, 0)
            for _ in range(MAX_TRIED):
                if end == 0:
                    break
                if end < len(self.tokens):
                    length = self._match_length(text, end)
                    if length > best.length:
                        best = Match(length, end)
                        if length == MAX_MATCH:
                            break
                end = previous[end]
            if best.end:
                return best
        return None

    def _match_length(self, text: Sequence[int], end: int) -> int:
        """How many tokens before `end` equal the last tokens of the text."""
        tokens, length = self.tokens, 0
        max_length = min(MAX_MATCH, end, len(text))
        while length < max_length and tokens[end - 1 - length] == text[-1 - length]:
            length += 1
        return length

    def continuation(self, start: int, count: int) -> tuple[int, ...]:
        """`count` tokens from `start` on, or fewer at a break. At the end of the text they repeat from `start`, as a
        text in a loop does."""
        tokens = self.tokens[start : start + count]
        if BREAK in tokens:
            return tuple(tokens[: tokens.index(BREAK)])
        period = len(self.tokens) - start
        while len(tokens) < count:
            tokens.append(tokens[len(tokens) - period])
        return tuple(tokens)
