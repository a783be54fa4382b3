"""Keeps control tokens that a user writes out, such as `<|im_end|>`, from taking effect in a rendered conversation.

A chat template mixes its own control tokens with the user's text, and its output is parsed for control tokens as a
whole. So before rendering, the text of every control token in the user's data is broken up by a mark. Parsing then
finds only the template's own tokens, and the marks are removed before the rest is encoded (`shielded`).
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers import AddedToken, normalizers

MARK = "\ufdd0\ufdef"  # two noncharacters of Unicode: they occur in no ordinary text


class Shield:
    """Breaks up the given texts wherever they occur, or could be completed at the start or end of a user's text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(text for text in texts if len(text) > 1)

    def apply(self, value: Any) -> Any:
        """Plain data with all texts shielded, including keys."""
        if isinstance(value, str):
            return self._shield(value)
        if isinstance(value, Mapping):
            return {self.apply(key): self.apply(member) for key, member in value.items()}
        return [self.apply(member) for member in value] if isinstance(value, list | tuple) else value

    def _shield(self, text: str) -> str:
        inside = self._starts.sub(self._broken, text) if self._texts else text
        before = MARK if any(text[:length] in self._suffixes for length in self._lengths) else ""
        after = MARK if any(text[-length:] in self._prefixes for length in self._lengths) else ""
        return before + inside + after

    def _broken(self, start: re.Match[str]) -> str:
        """The first two characters of a control token, with a mark between them if the rest of the token follows."""
        text, position = start.string, start.start()
        lengths = self._lengths_by_start[start[0]]
        is_token = any(text[position : position + length] in self._texts for length in lengths)
        return start[0][0] + MARK + start[0][1:] if is_token else start[0]

    @cached_property
    def _lengths_by_start(self) -> dict[str, list[int]]:
        """Lengths of the texts by their first two characters. There may be thousands of texts, most with the same
        start."""
        return {
            start: sorted({len(text) for text in self._texts if text.startswith(start)})
            for start in {text[:2] for text in self._texts}
        }

    @cached_property
    def _starts(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(start) for start in sorted(self._lengths_by_start)))

    @cached_property
    def _prefixes(self) -> frozenset[str]:
        """Proper prefixes of the texts, except of those that begin with a letter or digit: a word such as a role's name
        must reach the template unchanged."""
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
    """The same tokenizer over the same model, that cuts out control tokens first and then removes the marks."""
    shielding = tokenizers.Tokenizer(parsing.model)
    added = parsing.get_added_tokens_decoder()
    shielding.add_tokens(
        [_as_written(added[token]) for token in sorted(added)]
    )  # in this order they get the same ids again
    normalizer = [] if parsing.normalizer is None else [parsing.normalizer]
    shielding.normalizer = normalizers.Sequence([normalizers.Replace(MARK, ""), *normalizer])
    if parsing.pre_tokenizer is not None:
        shielding.pre_tokenizer = parsing.pre_tokenizer
    return shielding


def _as_written(token: AddedToken) -> AddedToken:
    """The token, matched in the text as written: control tokens are found before the marks are removed."""
    if not token.special:
        return token
    return AddedToken(
        token.content, single_word=token.single_word, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False,
        special=True,
    )  # fmt: skip
