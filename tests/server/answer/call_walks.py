"""Random answers that a grammar of calls allows, byte by byte: far stranger ones than a model writes."""

import random
from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from surefoot.sampling.grammar import lark_grammar
from surefoot.sampling.grammar_checker import ByteTokenizer
from surefoot.server.answer.call_forms import CallForm
from surefoot.server.answer.call_grammar import CallableTool, Literals, call_rules, text_rules
from surefoot.server.answer.channels import channel_rules
from surefoot.server.schemas.tools import ToolChoice

USUAL = b"abcxyz019 \n'\"<<>/{{}[[],:|=\\"
CLOSING = b"<\n'\"}])|"
MOST_BYTES = 1500


class CallGrammar:
    """Of one form and tools. control: the texts of the vocabulary's special tokens."""

    def __init__(
        self, form: CallForm, tools: Sequence[CallableTool], choice: ToolChoice, control: Sequence[str] = ()
    ) -> None:
        words = ByteTokenizer([bytes([byte]) for byte in range(256)] + [text.encode() for text in control] + [b"<end>"])
        words.special_token_ids = tuple(range(256, len(words.tokens)))
        self._words, self._form = words, form
        ids = {text: 256 + number for number, text in enumerate(control)}
        plain = tools if form.plain and choice == "auto" else ()
        rules = text_rules(form, ids) if choice == "none" else call_rules(form, tools, choice, True, plain, ids)
        beginning = channel_rules(Literals(ids), is_said=False) if form.in_channels else "start: answer\n"
        tokenizer = LLTokenizer(TokenizerWrapper(words), n_vocab=len(words.tokens))
        self._matcher = LLMatcher(tokenizer, lark_grammar(beginning + rules), log_level=0)
        assert not self._matcher.is_error(), self._matcher.get_error()
        self._pieces = sorted(control, key=len, reverse=True)

    def allows(self, text: str, spelled: str = "") -> bool:
        """With special tokens wherever their text is, except in what is spelled out, at its last place."""
        before, found, after = text.rpartition(spelled) if spelled else ("", "", text)
        matcher = self._matcher.deep_copy()
        tokens = [*self._tokens(before), *found.encode(), *self._tokens(after)]
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    def _tokens(self, text: str) -> list[int]:
        for piece in self._pieces:
            before, found, after = text.partition(piece)
            if found:
                token = self._words.tokens.index(piece.encode(), 256)
                return [*self._tokens(before), token, *self._tokens(after)]
        return list(text.encode())

    def walk(self, seed: int, begin: str = "") -> str | None:
        """An answer that begins so; None if it did not end in time."""
        rng, matcher, text = random.Random(seed), self._matcher.deep_copy(), begin.encode()
        matcher.consume_tokens(self._tokens(begin))
        while len(text) < MOST_BYTES:
            mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
            allowed = np.flatnonzero(np.unpackbits(mask, bitorder="little")[: len(self._words.tokens)])
            assert len(allowed), text
            end = self._words.eos_token_id
            if end in allowed and (len(allowed) == 1 or rng.random() < 0.5):
                return text.decode(errors="replace")
            token = self._next(rng, text, [int(token) for token in allowed if token != end])
            matcher.consume_token(token)
            text += self._words.tokens[token]
        return None

    def _next(self, rng: random.Random, text: bytes, allowed: Sequence[int]) -> int:
        """A usual character as a rule; often one that may close something, or goes on with a tag."""
        for tag in (self._form.tag or self._form.quote, self._form.opening):
            data = tag.encode()
            begun = next((count for count in range(len(data) - 1, 0, -1) if text.endswith(data[:count])), 0)
            if begun and data[begun] in allowed and rng.random() < 0.85:
                return data[begun]
        special = [token for token in allowed if token > 255]
        closing = [token for token in allowed if token < 128 and token in CLOSING]
        usual = [token for token in allowed if token < 128 and token in USUAL]
        if special and rng.random() < 0.3:
            return rng.choice(special)
        if closing and rng.random() < 0.35 + len(text) / 1000:
            return rng.choice(closing)
        return rng.choice(usual or allowed)
