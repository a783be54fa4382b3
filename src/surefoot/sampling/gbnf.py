"""Converts grammars from llama.cpp's notation, GBNF, to Lark's, which llguidance reads."""

from llguidance.gbnf_to_lark import gbnf_to_lark

from surefoot.sampling.grammar import GrammarError

MAX_CHARACTERS = 16 << 10  # the converter is written in Python: this many take up to 0.1 s


def lark_of(gbnf: str) -> str:
    """The grammar in Lark's notation. Raises GrammarError if it is not valid GBNF."""
    if len(gbnf) > MAX_CHARACTERS:
        raise GrammarError(f"a GBNF grammar has at most {MAX_CHARACTERS} characters: make it smaller")
    try:
        return gbnf_to_lark(gbnf)
    except Exception as error:  # the converter raises plain Exception, and RecursionError for deep nesting
        raise GrammarError(f"the grammar cannot be read as GBNF: {str(error)[:200]}") from error
