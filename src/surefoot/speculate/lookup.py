"""Drafts without a model: how the text continued where its last tokens stood before.

It searches the sample's own text first, then recent answers of the same namespace.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from surefoot.core import Request, SampleKey
from surefoot.ops.arrays import F32
from surefoot.speculate.drafter import NOTHING, Prospect
from surefoot.speculate.ngrams import BREAK, Match, NgramIndex

MOST_NAMESPACES = 16
GENERATION_TOKENS = 4096  # a namespace keeps two generations
CONTEXT_TOKENS = 8  # of the prompt's end, kept before an answer, so that its beginning is found too


class History:
    """One namespace's recent answers, in two generations: when the younger is full, the older is dropped."""

    def __init__(self) -> None:
        self._young, self._old = NgramIndex(), NgramIndex()

    def add(self, tokens: Sequence[int]) -> None:
        if len(self._young) + len(tokens) > GENERATION_TOKENS:
            self._young, self._old = NgramIndex(), self._young
        self._young.extend([*tokens[:GENERATION_TOKENS], BREAK])

    def find(self, text: Sequence[int]) -> tuple[Match, NgramIndex] | None:
        matches = [(match, index) for index in (self._young, self._old) if (match := index.find(text)) is not None]
        return max(matches, key=lambda pair: pair[0].length, default=None)


class _Text:
    """A sample's tokens, indexed, and their last match."""

    def __init__(self, request: Request, tokens: Sequence[int]) -> None:
        self.namespace = request.namespace
        self.num_prompt = len(request.prompt)
        self.index = NgramIndex(tokens)
        self.match: tuple[Match, NgramIndex] | None = None


class Lookup:
    """A Drafter. A prospect's kind is the length of the match and whether it is in the sample's own text."""

    def __init__(self) -> None:
        self._texts: dict[SampleKey, _Text] = {}
        self._histories: OrderedDict[str, History] = OrderedDict()

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        self._texts[key] = _Text(request, tokens)

    def advance(self, key: SampleKey, tokens: Sequence[int], state: F32 | None = None) -> None:
        self._texts[key].index.extend(tokens)

    def end(self, key: SampleKey) -> None:
        text = self._texts.pop(key, None)
        if text is not None and len(text.index) > text.num_prompt:
            self._history(text.namespace).add(text.index.tokens[max(0, text.num_prompt - CONTEXT_TOKENS) :])

    def prospects(self, keys: Sequence[SampleKey], most: int) -> list[Prospect]:
        return [self._prospect(self._texts[key], most) for key in keys]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        drafts: dict[SampleKey, tuple[int, ...]] = {}
        for key, depth in depths.items():
            if (text_match := self._texts[key].match) is not None:
                match, index = text_match
                drafts[key] = index.behind(match.place, depth)
        return drafts

    def _prospect(self, text: _Text, most: int) -> Prospect:
        own = text.index.find(text.index.tokens)
        text.match = None if own is None else (own, text.index)
        history = self._histories.get(text.namespace)
        served = history.find(text.index.tokens) if history is not None else None
        if served is not None and (own is None or served[0].length > own.length):
            text.match = served
        if text.match is None:
            return NOTHING
        match, index = text.match
        return Prospect(len(index.behind(match.place, most)), kind_of(match.length, index is text.index))

    def _history(self, namespace: str) -> History:
        history = self._histories.setdefault(namespace, History())
        self._histories.move_to_end(namespace)
        if len(self._histories) > MOST_NAMESPACES:
            self._histories.popitem(last=False)
        return history


def kind_of(length: int, own: bool) -> int:
    """Lengths in ranges that double; own text and history apart."""
    return 2 * length.bit_length() + own
