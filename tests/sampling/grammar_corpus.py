"""Grammars that were made to take long, and grammars that are large because somebody needs them so."""

from collections.abc import Mapping
from typing import Any

from surefoot.sampling.grammar import json_grammar, lark_grammar, regex_grammar


def _words(count: int) -> list[str]:
    return [f"word{number * number}" for number in range(count)]


def _nested(depth: int, leaf: Mapping[str, Any]) -> Mapping[str, Any]:
    """Objects in objects, each with a few optional neighbours."""
    schema = leaf
    for level in range(depth):
        beside = {f"p{level}_{number}": {"type": "string"} for number in range(4)}
        schema = {"type": "object", "properties": {**beside, "next": schema}, "required": ["next"]}
    return schema


def _any_of(names: list[str], **more: Any) -> Mapping[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names], **more}


def _tangle(count: int) -> Mapping[str, Any]:
    """Every definition may be followed by any of the others."""
    names = [f"d{number}" for number in range(count)]
    one = {"type": "object", "properties": {"next": _any_of(names), "list": {"type": "array", "items": _any_of(names)}}}
    return _any_of(names, **{"$defs": dict.fromkeys(names, one)})


AMBIGUOUS_LARK: Mapping[str, str] = {
    "the issue's own": 'start: e\ne: e e | "a" | "b" | e e e |',
    "two of itself": 'start: e\ne: e e | "a"',
    "four of itself": 'start: e\ne: e e e e | e e e | e e | e | "a" |',
    "twelve of itself": 'start: e\ne: ' + " | ".join("e " * n for n in range(2, 13)) + ' | "a" | "b" |',
    "many lists of lists": 'start: a*\na: b* | "x"\nb: c* | "y"\nc: d* | "z"\nd: e* | "x"\ne: a* | "y"',
    "optionals": "start: " + 'a? ' * 400 + '\na: "a" | b\nb: "a"',
    "optional groups": 'start: (((((((a? b?)* a?)* b?)* a?)* b?)* a?)* b?)*\na: "a"\nb: "a" | "b"',
    "nullable cycle": 'start: a\na: b a | a b | "x" |\nb: a b | b a | "y" |',
    "right recursion": 'start: a\na: "x" a | "x" b | "x"\nb: "x" a | "x" b | "x"',
    "palindromes": 'start: p\np: "a" p "a" | "b" p "b" | "a" | "b" |',
    "every letter a rule": "start: s\ns: s s | " + " | ".join(f'"{chr(97 + n)}"' for n in range(26)),
    "words of words": 'start: w+\nw: v+\nv: u+\nu: /[a-z ]/',
    "overlapping lexemes": "start: (" + " | ".join(f"L{n}" for n in range(60)) + ")*\n"
    + "\n".join(f"L{n}: /[a-z]{{{n + 1},{2 * n + 2}}}/" for n in range(60)),
    "many alternatives": "start: x*\nx: " + " | ".join(f"r{n}" for n in range(900))
    + "\n" + "\n".join(f'r{n}: "a" r{(n * 7) % 900} | "b{n}"' for n in range(900)),
    "bounded repeats": 'start: (a{0,200} b{0,200}){0,200}\na: "a"\nb: "a" | "b"',
    "lazy": 'start: (l | m)*\nl[lazy]: /(.|\\n)*/ "x"\nm[lazy]: /(.|\\n)*/ "y"',
    "dashes and spaces": 'start: e\ne: e e | " " | "-" | "=" | "*" | e e e |',
    "suffix": 'start: (l | m)*\nl[suffix="end"]: /(.|\\n)*/\nm[suffix="stop"]: /(.|\\n)*/',
}  # fmt: skip

HOSTILE_REGEXES: Mapping[str, str] = {
    "nested stars": "(((a*)*b*)*c*)*d",
    "exponential": "(a|a)*(a|aa)*(aa|aaa)*b",
    "remembers 20": "(a|b)*a(a|b){20}",
    "remembers 200": "(.|\\n)*x.{200}",
    "ten thousand": ".{0,10000}",
    "counted words": "([a-z]{1,40} ){0,2000}",
    "nested counts": "((a{1,30}b{1,30}){1,30}c){1,30}",
    "letters": "(\\p{L}|\\p{N}|\\p{P}){0,3000}",
    "not letters": "(\\P{L}\\p{L}{0,50}){0,300}",
    "alternatives": "|".join(f".*{word}.*" for word in _words(60)),
    "prefixes": "(" + "|".join("a" * n + "b" for n in range(1, 300)) + ")*",
    "ends alike": "(.*a.{12}|.*b.{13}|.*c.{14})",
}

HOSTILE_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "all of": {"type": "string", "allOf": [{"pattern": f".*{n}.*"} for n in range(12)]},
    "and": {"type": "string", "allOf": [{"pattern": f"^(.*{w}.*|x{n}.*)$"} for n, w in enumerate(_words(6))]},
    "long strings": {"type": "array", "items": {"type": "string", "maxLength": 9000}, "maxItems": 3000},
    "tangle": _tangle(40),
    "any of any of": {"anyOf": [{"type": "object", "properties": {w: _tangle(3)["$defs"]["d0"] | {"properties": {}}}}
                                for w in _words(300)]},
    "many optional": {"type": "object", "properties": {w: {"type": ["string", "null"]} for w in _words(1500)}},
    "pattern properties": {"type": "object", "patternProperties": {f"^{w}x": {"type": "integer"} for w in _words(40)}},
    "enum of thousands": {"enum": _words(4000)},
    "pattern with remembering": {"type": "string", "pattern": "^(a|b)*a(a|b){18}$"},
    "items": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 50},
              "minItems": 2000, "maxItems": 5000},
    "numbers": {"type": "array", "items": {"type": "number", "minimum": -1e9, "maximum": 1e9, "multipleOf": 7}},
    "constant": {"const": "The quick brown fox jumps over it. " * 1500},
    "deep": _nested(60, {"type": "string"}),
}  # fmt: skip


def hostile() -> dict[str, str]:
    return {
        **{f"lark: {name}": lark_grammar(text) for name, text in AMBIGUOUS_LARK.items()},
        **{f"regex: {name}": regex_grammar(text) for name, text in HOSTILE_REGEXES.items()},
        **{f"schema: {name}": json_grammar(schema) for name, schema in HOSTILE_SCHEMAS.items()},
    }


def _tool(number: int) -> Mapping[str, Any]:
    """What editors' assistants send: a dozen parameters, some of them lists of objects."""
    edit = {
        "type": "object",
        "properties": {
            "old_text": {"type": "string"},
            "new_text": {"type": "string"},
            "replace_all": {"type": "boolean"},
            "line": {"type": "integer", "minimum": 1},
        },
        "required": ["old_text", "new_text"],
        "additionalProperties": False,
    }
    plain = {f"option_{number}_{n}": {"type": ["string", "number", "boolean", "null"][n % 4]} for n in range(8)}
    properties = {
        "path": {"type": "string", "minLength": 1, "maxLength": 500},
        "edits": {"type": "array", "items": edit, "minItems": 1},
        "mode": {"enum": ["read", "write", "append", "delete"]},
        "filters": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
        **plain,
    }
    return {"type": "object", "properties": properties, "required": ["path", "edits"], "additionalProperties": False}


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 80},
        "email": {"type": "string", "format": "email"},
        "born": {"type": "string", "format": "date"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "address": {"$ref": "#/$defs/address"},
        "friends": {"type": "array", "items": {"$ref": "#"}, "maxItems": 20},
    },
    "required": ["name", "address"],
    "additionalProperties": False,
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
                           "country": {"enum": [f"C{n}" for n in range(250)]}},
            "required": ["street"],
        }
    },
}  # fmt: skip
# A language's syntax tree, as schemas of code assistants have it.
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {"anyOf": [{"$ref": f"#/$defs/kind{n}"} for n in range(25)]},
        **{
            f"kind{n}": {
                "type": "object",
                "properties": {
                    "kind": {"const": f"kind{n}"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                    "name": {"type": "string"},
                },
                "required": ["kind", "children"],
                "additionalProperties": False,
            }
            for n in range(25)
        },
    },
}
SQL = """
start: query ";"
query: "SELECT " columns " FROM " NAME (" WHERE " condition)? (" ORDER BY " NAME)?
columns: "*" | NAME (", " NAME)*
condition: comparison ((" AND " | " OR ") comparison)*
comparison: NAME " " OPERATOR " " value | "(" condition ")"
value: NUMBER | STRING | NAME
OPERATOR: "=" | "<" | ">" | "<=" | ">=" | "<>"
NAME: /[a-z_][a-z0-9_]{0,30}/
NUMBER: /-?[0-9]{1,12}(\\.[0-9]{1,6})?/
STRING: /'[^']{0,200}'/
"""
ARITHMETIC = """
start: sum
sum: product | sum ("+" | "-") product
product: atom | product ("*" | "/") atom
atom: NUMBER | "-" atom | "(" sum ")" | NAME "(" sum ("," sum)* ")"
NUMBER: /[0-9]{1,9}(\\.[0-9]{1,9})?/
NAME: /[a-z]{1,12}/
"""
ORDINARY_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "any object": {"type": "object"},
    "person": PERSON,
    "one tool": _tool(0),
    "thirty tools": {"anyOf": [
        {"type": "object", "properties": {"name": {"const": f"tool_{n}"}, "arguments": _tool(n)},
         "required": ["name", "arguments"], "additionalProperties": False} for n in range(30)]},
    "syntax tree": TREE,
    "enum of 500": {"type": "object", "properties": {"choice": {"enum": _words(500)}}, "required": ["choice"]},
    "200 optional fields": {"type": "object", "properties": {w: {"type": ["string", "null"]} for w in _words(200)}},
    "long constant": {"const": "The quick brown fox jumps over it. " * 100},
    "nested ten deep": _nested(10, {"type": "array", "items": {"type": "number"}}),
    "formats": {"type": "object", "required": ["when", "id", "site"], "properties": {
        "when": {"type": "string", "format": "date-time"}, "id": {"type": "string", "format": "uuid"},
        "site": {"type": "string", "format": "uri"}}},
    "table": {"type": "array", "items": {"type": "array", "items": {"type": "number"}, "minItems": 5, "maxItems": 5}},
}  # fmt: skip
ORDINARY_REGEXES: Mapping[str, str] = {
    "answer": "(yes|no): [a-z ]{3,200}",
    "date": "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9](Z|[+-][0-9]{2}:[0-9]{2})",
    "sentences": "([A-Z][a-z]+( [a-z]+){2,20}\\. ?){1,10}",
    "anything": "(.|\\n){0,2000}",
    "letters": "[\\p{L}\\p{N} ,.'-]{1,300}",
}


def ordinary() -> dict[str, str]:
    return {
        **{f"schema: {name}": json_grammar(schema) for name, schema in ORDINARY_SCHEMAS.items()},
        **{f"regex: {name}": regex_grammar(text) for name, text in ORDINARY_REGEXES.items()},
        "lark: sql": lark_grammar(SQL),
        "lark: arithmetic": lark_grammar(ARITHMETIC),
    }
