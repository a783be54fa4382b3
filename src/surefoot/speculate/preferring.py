"""Two drafters as one: lookup where it has a long match, else one that can always guess."""

from collections.abc import Mapping, Sequence

from surefoot.core import Request, SampleKey
from surefoot.ops.arrays import F32
from surefoot.speculate.drafter import Drafter, Prospect
from surefoot.speculate.lookup import Lookup, kind_of

LONG = kind_of(8, own=False)  # copied text matches at length, and copying costs nothing


class Preferring:
    """A Drafter. The other's kinds are told apart from lookup's by their sign."""

    def __init__(self, lookup: Lookup, other: Drafter) -> None:
        self._lookup, self._other = lookup, other
        self._looked_up: set[SampleKey] = set()  # of those last asked for

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        self._lookup.start(key, request, tokens)
        self._other.start(key, request, tokens)

    def advance(self, key: SampleKey, tokens: Sequence[int], state: F32 | None = None) -> None:
        self._lookup.advance(key, tokens)
        self._other.advance(key, tokens, state)

    def end(self, key: SampleKey) -> None:
        self._lookup.end(key)
        self._other.end(key)

    def prospects(self, keys: Sequence[SampleKey], most: int) -> list[Prospect]:
        found = dict(zip(keys, self._lookup.prospects(keys, most), strict=True))
        rest = [key for key, one in found.items() if one.kind < LONG]
        guessed = {
            key: one._replace(kind=-1 - one.kind)
            for key, one in zip(rest, self._other.prospects(rest, most), strict=True)
            if one.most
        }
        self._looked_up = set(keys) - guessed.keys()
        return [guessed.get(key, found[key]) for key in keys]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        looked_up = {key: depth for key, depth in depths.items() if key in self._looked_up}
        guessed = {key: depth for key, depth in depths.items() if key not in self._looked_up}
        return self._lookup.draft(looked_up) | self._other.draft(guessed)
