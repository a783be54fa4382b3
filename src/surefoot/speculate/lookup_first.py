"""Two drafters as one: lookup where it has a long match, else a drafter that can always guess."""

from collections.abc import Mapping, Sequence

from surefoot.core import Request, SampleKey
from surefoot.ops.arrays import F32
from surefoot.speculate.drafter import Drafter, Prospect
from surefoot.speculate.lookup import Lookup, kind_of

LONG = kind_of(8, own=False)  # copied text matches at length, and lookup costs nothing


class LookupFirst:
    """A Drafter. Kinds of the other drafter are negative, those of lookup are not."""

    def __init__(self, lookup: Lookup, other: Drafter) -> None:
        self._lookup, self._other = lookup, other
        self._looked_up: set[SampleKey] = set()  # samples whose last prospect was lookup's

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
        matches = dict(zip(keys, self._lookup.prospects(keys, most), strict=True))
        rest = [key for key, match in matches.items() if match.kind < LONG]
        guessed = {
            key: prospect._replace(kind=-1 - prospect.kind)
            for key, prospect in zip(rest, self._other.prospects(rest, most), strict=True)
            if prospect.most
        }
        self._looked_up = set(keys) - guessed.keys()
        return [guessed.get(key, matches[key]) for key in keys]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        looked_up = {key: depth for key, depth in depths.items() if key in self._looked_up}
        guessed = {key: depth for key, depth in depths.items() if key not in self._looked_up}
        return self._lookup.draft(looked_up) | self._other.draft(guessed)
