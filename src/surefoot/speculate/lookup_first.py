"""Two drafters combined: lookup where it has a long match, else a drafter that can always draft."""

from collections.abc import Mapping, Sequence

from surefoot.core import Request, SampleKey
from surefoot.speculate.drafter import Drafter, DraftOffer, TargetRow
from surefoot.speculate.lookup import LookupDrafter, match_kind

MIN_LOOKUP_KIND = match_kind(8, in_text=False)  # copied text has long matches, and lookup costs nothing


class LookupFirst:
    """A Drafter. Kinds of the fallback are negative, kinds of lookup are not."""

    def __init__(self, lookup: LookupDrafter, fallback: Drafter) -> None:
        self._lookup, self._fallback = lookup, fallback
        self._looked_up: set[SampleKey] = set()  # samples whose last offer was lookup's

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        self._lookup.start(key, request, tokens)
        self._fallback.start(key, request, tokens)

    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None:
        self._lookup.advance(key, tokens)
        self._fallback.advance(key, tokens, row)

    def end(self, key: SampleKey) -> None:
        self._lookup.end(key)
        self._fallback.end(key)

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        by_lookup = dict(zip(keys, self._lookup.offers(keys, max_depth), strict=True))
        others = [key for key, offer in by_lookup.items() if offer.kind < MIN_LOOKUP_KIND]
        by_fallback = {
            key: offer._replace(kind=-1 - offer.kind)
            for key, offer in zip(others, self._fallback.offers(others, max_depth), strict=True)
            if offer.max_depth
        }
        self._looked_up = set(keys) - by_fallback.keys()
        return [by_fallback.get(key, by_lookup[key]) for key in keys]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        by_lookup = {key: depth for key, depth in depths.items() if key in self._looked_up}
        by_fallback = {key: depth for key, depth in depths.items() if key not in self._looked_up}
        return self._lookup.draft(by_lookup) | self._fallback.draft(by_fallback)
