"""The tokenizer that schemas are tried with."""

from llguidance import LLTokenizer, TokenizerWrapper

from surefoot.sampling.grammar_checker import ByteTokenizer

WORDS = ByteTokenizer([bytes([byte]) for byte in range(256)] + [b"<end>"])


TOKENIZER = LLTokenizer(TokenizerWrapper(WORDS), n_vocab=len(WORDS.tokens))
