"""Drafts without a model (prompt lookup): how the text continued after an earlier occurrence of its last tokens.

The sample's own text is searched first, then recent answers of the same namespace.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from surefoot.core import Request, SampleKey
from surefoot.speculate.drafter import NO_DRAFT, Drafter, DraftOffer, TargetRow

ORDERS = (4, 2)  # n: four tokens tell one occurrence from others, two find an occurrence at all
MAX_TRIED = 8  # occurrences of one n-gram that are compared, the latest first
MAX_MATCH = 32  # longer matches count as this long
BREAK = -1  # between texts: no token, so that no match and no draft crosses it
MAX_NAMESPACES = 16
GENERATION_TOKENS = 4096  # a namespace keeps two generations
CONTEXT_TOKENS = 8  # last prompt tokens, kept before an answer so that a match can lead to the answer's beginning


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


class AnswerHistory:
    """One namespace's recent answers, in two generations. When the young generation is full, the old one is dropped."""

    def __init__(self) -> None:
        self._young, self._old = NgramIndex(), NgramIndex()

    def add(self, tokens: Sequence[int]) -> None:
        if len(self._young) + len(tokens) > GENERATION_TOKENS:
            self._young, self._old = NgramIndex(), self._young
        self._young.extend([*tokens[:GENERATION_TOKENS], BREAK])

    def find(self, text: Sequence[int]) -> tuple[Match, NgramIndex] | None:
        matches = [(match, index) for index in (self._young, self._old) if (match := index.find(text)) is not None]
        return max(matches, key=lambda pair: pair[0].length, default=None)


class _IndexedText:
    """A sample's tokens, indexed, and their last match."""

    def __init__(self, request: Request, tokens: Sequence[int]) -> None:
        self.namespace = request.namespace
        self.num_prompt = len(request.prompt)
        self.index = NgramIndex(tokens)
        self.match: tuple[Match, NgramIndex] | None = None


class LookupDrafter:
    """A Drafter by n-gram lookup. The kind of a draft is the match's length and whether it is in the sample's text."""

    def __init__(self) -> None:
        self._texts: dict[SampleKey, _IndexedText] = {}
        self._histories: OrderedDict[str, AnswerHistory] = OrderedDict()  # by namespace, the last used at the end

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        self._texts[key] = _IndexedText(request, tokens)

    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None:
        self._texts[key].index.extend(tokens)

    def end(self, key: SampleKey) -> None:
        text = self._texts.pop(key, None)
        if text is not None and len(text.index) > text.num_prompt:
            self._history(text.namespace).add(text.index.tokens[max(0, text.num_prompt - CONTEXT_TOKENS) :])

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        return [self._offer(self._texts[key], max_depth) for key in keys]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        drafts: dict[SampleKey, tuple[int, ...]] = {}
        for key, depth in depths.items():
            if (text_match := self._texts[key].match) is not None:
                match, index = text_match
                drafts[key] = index.continuation(match.end, depth)
        return drafts

    def _offer(self, text: _IndexedText, max_depth: int) -> DraftOffer:
        text.match = self._find(text)
        if text.match is None:
            return NO_DRAFT
        match, index = text.match
        return DraftOffer(len(index.continuation(match.end, max_depth)), match_kind(match.length, index is text.index))

    def _find(self, text: _IndexedText) -> tuple[Match, NgramIndex] | None:
        """The longer of the matches in the text and in the history; the text's if both are equally long."""
        in_text = text.index.find(text.index.tokens)
        history = self._histories.get(text.namespace)
        in_history = history.find(text.index.tokens) if history is not None else None
        if in_history is not None and (in_text is None or in_history[0].length > in_text.length):
            return in_history
        return None if in_text is None else (in_text, text.index)

    def _history(self, namespace: str) -> AnswerHistory:
        history = self._histories.setdefault(namespace, AnswerHistory())
        self._histories.move_to_end(namespace)
        if len(self._histories) > MAX_NAMESPACES:
            self._histories.popitem(last=False)
        return history


def match_kind(length: int, in_text: bool) -> int:
    """A kind for each range of lengths (2-3, 4-7, 8-15, ...), apart for the sample's text and for history."""
    return 2 * length.bit_length() + in_text


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
