"""Grammars of custom tools' inputs, as one regex: the input is a string in the call's JSON, which llguidance holds to a
regex, escapes included.

In Lark, the text of each rule takes the place of its name. A grammar that is recursive, or uses what is not known here,
cannot be written so.
"""

import json
import re
from collections.abc import Mapping, Sequence

from surefoot.server.answer.json_schemas import LOOKS_AROUND
from surefoot.server.schemas.dialects import literal_regex
from surefoot.server.schemas.tools import InputGrammar

MOST_CHARACTERS = 256 << 10  # of the regexes of all rules together
MOST_LEVELS = 64  # of rules in rules
_WORD = re.compile(
    r"""(?P<skipped>//[^\n]*|->[ \t]*\w+|\s+)
    |(?P<string>"(?:\\.|[^"\\\n])*")(?P<case>i\b)?
    |/(?P<regex>(?:\\.|[^/\\\n])+)/(?P<flags>[is]*)(?!\w)
    |[?!]?(?P<rule>[A-Za-z_]\w*)[ \t]*:
    |(?P<name>[A-Za-z_]\w*)
    |%import[ \t]+common\.(?P<common>\w+)
    |~[ \t]*(?P<least>\d+)(?:\.\.(?P<most>\d+))?
    |(?P<operator>[|()\[\]?*+]|\{[\d,]+\})""",
    re.VERBOSE,
)
_OPERATORS = {"(": "(?:", "[": "(?:", "]": ")?"}
_COMMON = {
    "LF": r"\n", "CR": r"\r", "NEWLINE": r"(\r?\n)+", "WS": r"[ \t\f\r\n]+", "WS_INLINE": r"[ \t]+",
    "DIGIT": "[0-9]", "INT": "[0-9]+", "LETTER": "[a-zA-Z]", "WORD": "[a-zA-Z]+", "CNAME": "[a-zA-Z_][a-zA-Z0-9_]*",
}  # fmt: skip
Words = list[re.Match[str]]


def input_pattern(grammar: InputGrammar) -> str:
    """The pattern, as in JSON schemas, of the texts that a grammar allows. Raises ValueError."""
    regex = grammar.definition if grammar.syntax == "regex" else _lark_as_regex(grammar.definition)
    if LOOKS_AROUND.search(regex):
        raise ValueError("a regex that looks around cannot be enforced")
    return f"^(?:{regex})$"


def _lark_as_regex(grammar: str) -> str:
    rules: dict[str, Words] = {}
    rule, place = "", 0
    while place < len(grammar):
        word = _WORD.match(grammar, place)
        if word is None:
            raise ValueError(f"{grammar[place : place + 16]!r} cannot be written as a regex")
        place = word.end()
        if (defined := word["rule"] or word["common"]) is not None:
            if defined in rules:
                raise ValueError(f"{defined} is defined twice")
            rule, rules[defined] = defined, []
        if word["skipped"] is None:
            rules.setdefault(rule, []).append(word)
    if "" in rules:
        raise ValueError("it does not begin with a rule")
    return _RegexRules(rules).regex("start")


class _RegexRules:
    def __init__(self, rules: Mapping[str, Words]) -> None:
        self._rules = rules
        self._regexes: dict[str, str] = {}
        self._num_left = MOST_CHARACTERS

    def regex(self, name: str, outer: Sequence[str] = ()) -> str:
        """Of a rule. outer: the rules in which it stands."""
        if name in outer or name not in self._rules or len(outer) > MOST_LEVELS:
            raise ValueError(f"{name} is recursive, nested too deep, or missing")
        if name not in self._regexes:
            parts = [self._part(word, (*outer, name)) for word in self._rules[name]]
            self._regexes[name] = f"(?:{''.join(parts)})"
        return self._regexes[name]

    def _part(self, word: re.Match[str], outer: Sequence[str]) -> str:
        part = self.regex(word["name"], outer) if word["name"] is not None else _own_part(word)
        self._num_left -= len(part)
        if self._num_left < 0:
            raise ValueError("the grammar is too large")
        return part


def _own_part(word: re.Match[str]) -> str:
    if word["string"] is not None:
        return f"(?{word['case'] or ''}:{literal_regex(json.loads(word['string']))})"
    if word["regex"] is not None:
        return f"(?{word['flags']}:{word['regex']})"
    if word["least"] is not None:
        return f"{{{word['least']},{word['most'] or word['least']}}}"
    if word["common"] is not None:
        if word["common"] not in _COMMON:
            raise ValueError(f"common.{word['common']} is not known")
        return _COMMON[word["common"]]
    return _OPERATORS.get(word[0], word[0]) if word["operator"] is not None else ""
