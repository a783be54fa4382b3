"""Keeps control tokens that a user writes out, as `<|im_end|>`, from counting as such in a rendered conversation.

A chat template mixes its own control tokens with the user's text, and what it renders is parsed for control tokens as a
whole. So before it renders, every control token's text in what comes from the user is broken up by a mark. Parsing then
finds the template's own tokens alone, and the marks are taken out before the rest is encoded (`shielded`).
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers import AddedToken, normalizers

MARK = "\ufdd0\ufdef"  # two code points that are never characters: in no text but one that was made for it


class Shield:
    """Breaks up the given texts, also where they would come about at the edge of what the user wrote."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(text for text in texts if len(text) > 1)

    def apply(self, value: Any) -> Any:
        """Plain data with all its texts shielded, those of its keys too."""
        if isinstance(value, str):
            return self._shield(value)
        if isinstance(value, Mapping):
            return {self.apply(key): self.apply(one) for key, one in value.items()}
        return [self.apply(one) for one in value] if isinstance(value, list | tuple) else value

    def _shield(self, text: str) -> str:
        inside = self._starts.sub(self._broken, text) if self._texts else text
        before = MARK if any(text[:length] in self._suffixes for length in self._lengths) else ""
        after = MARK if any(text[-length:] in self._prefixes for length in self._lengths) else ""
        return before + inside + after

    def _broken(self, start: re.Match[str]) -> str:
        """The first characters of a control token, with a mark behind the first if the others follow."""
        text, place = start.string, start.start()
        lengths = self._lengths_by_start[start[0]]
        is_token = any(text[place : place + length] in self._texts for length in lengths)
        return start[0][0] + MARK + start[0][1:] if is_token else start[0]

    @cached_property
    def _lengths_by_start(self) -> dict[str, list[int]]:
        """By their first two characters: there may be thousands of texts, most of them alike."""
        return {
            start: sorted({len(text) for text in self._texts if text.startswith(start)})
            for start in {text[:2] for text in self._texts}
        }

    @cached_property
    def _starts(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(start) for start in sorted(self._lengths_by_start)))

    @cached_property
    def _prefixes(self) -> frozenset[str]:
        """Not of texts that begin with a letter: a word such as a role's name must reach the template as it is."""
        texts = [text for text in self._texts if not text[0].isalnum()]
        return frozenset(text[:length] for text in texts for length in range(1, len(text)))

    @cached_property
    def _suffixes(self) -> frozenset[str]:
        texts = [text for text in self._texts if not text[-1].isalnum()]
        return frozenset(text[-length:] for text in texts for length in range(1, len(text)))

    @cached_property
    def _lengths(self) -> range:
        return range(1, max(map(len, self._texts), default=1))


def without_marks(text: str) -> str:
    return text.replace(MARK, "")


def shielded(parsing: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer over the same model: it cuts out control tokens first, then takes out the marks."""
    made = tokenizers.Tokenizer(parsing.model)
    added = parsing.get_added_tokens_decoder()
    made.add_tokens([_as_written(added[token]) for token in sorted(added)])  # in this order they get the same ids again
    own = [] if parsing.normalizer is None else [parsing.normalizer]
    made.normalizer = normalizers.Sequence([normalizers.Replace(MARK, ""), *own])
    if parsing.pre_tokenizer is not None:
        made.pre_tokenizer = parsing.pre_tokenizer
    return made


def _as_written(token: AddedToken) -> AddedToken:
    """A control token is looked for before the marks are gone."""
    if not token.special:
        return token
    return AddedToken(
        token.content, single_word=token.single_word, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False,
        special=True,
    )  # fmt: skip
