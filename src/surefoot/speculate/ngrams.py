"""An index of n-grams: where the last tokens of a text occurred before."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

ORDERS = (4, 2)  # the long one finds the right place among many, the short one any place at all
MOST_TRIED = 8  # places of one n-gram, the latest first
LONGEST = 32  # longer matches count as this long
BREAK = -1  # between texts: no token, so that no match and no draft crosses it


class Match(NamedTuple):
    length: int  # tokens before `place` that equal those at the text's end
    place: int


class NgramIndex:
    """Tokens, and for each n-gram the place behind its latest occurrence; from there a chain leads to those before.

    Some 110 bytes a token, two microseconds to add one.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.tokens: list[int] = []
        self._latest: tuple[dict[int, int], ...] = tuple({} for _ in ORDERS)
        self._before: tuple[list[int], ...] = tuple([0] for _ in ORDERS)  # by place; 0: there is none
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        own = self.tokens
        for token in tokens:
            own.append(token)
            place = len(own)
            for order, latest, before in zip(ORDERS, self._latest, self._before, strict=True):
                if place < order:
                    before.append(0)
                    continue
                gram = hash(tuple(own[-order:]))  # two of one hash are told apart by comparing tokens
                before.append(latest.get(gram, 0))
                latest[gram] = place

    def find(self, text: Sequence[int]) -> Match | None:
        """The longest match of the text's end that has tokens after it; of equals the latest."""
        for order, latest, before in zip(ORDERS, self._latest, self._before, strict=True):
            if len(text) < order:
                continue
            place = latest.get(hash(tuple(text[-order:])), 0)
            best = Match(order - 1, 0)
            for _ in range(MOST_TRIED):
                if place == 0:
                    break
                if place < len(self.tokens):
                    length = self._length(text, place)
                    if length > best.length:
                        best = Match(length, place)
                        if length == LONGEST:
                            break
                place = before[place]
            if best.place:
                return best
        return None

    def _length(self, text: Sequence[int], place: int) -> int:
        """How many tokens before the place are as the text's last."""
        own, length = self.tokens, 0
        most = min(LONGEST, place, len(text))
        while length < most and own[place - 1 - length] == text[-1 - length]:
            length += 1
        return length

    def behind(self, place: int, count: int) -> tuple[int, ...]:
        """The tokens there, up to a break; at the end of the text it repeats itself, as a text in a loop does."""
        tokens = self.tokens[place : place + count]
        if BREAK in tokens:
            return tuple(tokens[: tokens.index(BREAK)])
        period = len(self.tokens) - place
        while len(tokens) < count:
            tokens.append(tokens[len(tokens) - period])
        return tuple(tokens)
