"""Drafts without a model (prompt lookup): how the text continued after an earlier occurrence of its last tokens.

The sample's own text is searched first, then recent answers of the same namespace.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from surefoot.core import Request, SampleKey
from surefoot.speculate.drafter import NO_DRAFT, DraftOffer, TargetRow
from surefoot.speculate.ngrams import BREAK, Match, NgramIndex

MAX_NAMESPACES = 16
GENERATION_TOKENS = 4096  # a namespace keeps two generations
CONTEXT_TOKENS = 8  # last prompt tokens, kept before an answer so that a match can lead to the answer's beginning


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
