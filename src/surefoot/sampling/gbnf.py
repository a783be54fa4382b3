"""Grammars in llama.cpp's notation, for the engine that reads Lark's."""

from llguidance.gbnf_to_lark import gbnf_to_lark

from surefoot.sampling.grammar import GrammarError

MOST_CHARACTERS = 16 << 10  # the converter is written in Python: this many take up to 0.1 s


def lark_of(gbnf: str) -> str:
    """Raises GrammarError if it cannot be read."""
    if len(gbnf) > MOST_CHARACTERS:
        raise GrammarError(f"a GBNF grammar has at most {MOST_CHARACTERS} characters: make it smaller")
    try:
        return gbnf_to_lark(gbnf)
    except Exception as error:  # the converter's own, plain exceptions, and too deep a nesting
        raise GrammarError(f"the grammar cannot be read as GBNF: {str(error)[:200]}") from error
