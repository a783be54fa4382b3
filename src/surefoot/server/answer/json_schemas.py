"""Clients' JSON schemas, rewritten so that a grammar can enforce them.

llguidance refuses keywords that it cannot enforce. Most schemas with such a keyword have an equivalent form without it,
which this module finds. Otherwise the keyword is left out and reported, so that the caller can refuse the schema or say
that it is enforced in part.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from surefoot.server.answer.call_values import listed_values

MOST_LEVELS = 64
MOST_NAMES = 256  # listed by a propertyNames: each becomes a property
MOST_VALUES = 64  # of a property that a condition tests
MOST_CONDITIONS = 32
MOST_COPIED = 64 << 10  # characters that copies of one part may take
# Keywords that describe and do not constrain.
_ANNOTATIONS = frozenset({
    "$comment", "default", "deprecated", "description", "example", "examples", "readOnly", "title", "writeOnly",
    "x-guidance",
})  # fmt: skip
# The formats that are enforced; by the specification, other formats are annotations.
FORMATS = frozenset({
    "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid",
})  # fmt: skip
_NO_FORM = ("contains", "minContains", "maxContains", "unevaluatedItems", "$dynamicRef", "$recursiveRef")
# Keywords with schemas of the same value, beside which an object may have more properties than the schema itself lists.
_SAME = ("if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
# Keywords with schemas of values inside of the value.
_OWN = (
    "properties", "patternProperties", "additionalProperties", "items", "additionalItems", "propertyNames",
    "prefixItems",
)  # fmt: skip
_COMPOSING = frozenset({"$ref", *_SAME})
_DEFINITIONS = ("$defs", "definitions")
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
LOOKS_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])|\\[1-9]|\\k<")

NO_SCHEMA = "it is not a JSON schema: check the types of its keywords' values"
Schema = dict[str, Any]


class SchemaError(ValueError):
    """The schema cannot be used; the message says why."""


@dataclass(frozen=True)
class PreparedSchema:
    """A schema that a grammar can enforce."""

    schema: Schema
    unenforced: tuple[str, ...]  # keywords that were left out, each once


def arguments_schema(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of a tool's arguments. An object that lists no properties has none."""
    if not parameters:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    is_bare = parameters.get("type") == "object" and not _COMPOSING & parameters.keys()
    return {"properties": {}, **parameters} if is_bare else dict(parameters)


def prepare(schema: Mapping[str, Any], *, closes: bool = False, any_of: bool = False) -> PreparedSchema:
    """The schema in an enforceable form. Raises SchemaError.

    closes: an object that lists its properties has no others, unless the schema says so. Whatever fits the closed
    schema fits the original. any_of: a oneOf becomes an anyOf, so that several of its forms may fit at once.
    """
    try:
        rewriter = _Rewriter(closes, _open_definitions(schema) if closes else frozenset(), any_of)
        rewritten = rewriter.rewrite(dict(schema), closes, {}, 0)
    except (AttributeError, TypeError) as error:  # a keyword with a value of another type than it has
        raise SchemaError(NO_SCHEMA) from error
    if not isinstance(rewritten, dict):
        raise SchemaError("no value fits the schema: correct its 'not'")
    return PreparedSchema(rewritten, tuple(rewriter.unenforced))


# ---- which objects to close ----


def _inside(schema: Schema, word: str) -> list[Any]:
    """The schemas inside of a keyword."""
    part = schema.get(word)
    if word in _BY_NAME:
        return [*part.values()] if isinstance(part, dict) else []
    return part if isinstance(part, list) else [part]


def _members(schema: Schema, closes: bool) -> Iterator[tuple[Any, bool]]:
    """Schemas inside this one, without definitions, and whether their objects are to be closed. A schema that is only
    part of what an object must fit stays open."""
    for word in _OWN:
        yield from ((member, True) for member in _inside(schema, word))
    for word in _SAME:
        yield from ((member, _closes_inside(schema, word, closes)) for member in _inside(schema, word))


def _closes_inside(schema: Schema, word: str, closes: bool) -> bool:
    """Whether objects inside of this keyword may be closed. The forms of a union are whole objects if no keyword beside
    it adds properties. The parts of an allOf are not, nor are conditions."""
    if word not in ("allOf", "anyOf", "oneOf"):
        return False
    beside = (_COMPOSING | {"properties", "patternProperties"}) & schema.keys() - {word}
    return closes and not beside and (word != "allOf" or len(_inside(schema, word)) == 1)


def _adds_to(schema: Schema) -> bool:
    """Whether keywords beside `properties` add more properties."""
    names = set(schema.get("properties", ()))
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        required = part.get("required")
        named = {*part.get("properties", ()), *(required if isinstance(required, list) else ())}
        if "$ref" in part or named - names or (part is not schema and "patternProperties" in part):
            return True
        waiting += [member for word in _SAME for member in _inside(part, word)]
    return False


def _open_definitions(root: Mapping[str, Any]) -> frozenset[str]:
    """References to definitions that stay open, since they are only part of what some object must fit."""
    references: set[str] = set()
    definitions = {
        f"#/{word}/{name}": member
        for word in _DEFINITIONS
        if isinstance(root.get(word), dict)
        for name, member in root[word].items()
    }
    waiting = [(dict(root), True, 0), *((member, True, 0) for member in definitions.values())]
    while waiting:
        schema, closes, level = waiting.pop()
        if not isinstance(schema, dict):
            continue
        _check_level(level)
        target = schema.get("$ref")
        is_part = not closes or {"properties", "allOf", "anyOf", "oneOf"} & schema.keys()
        if isinstance(target, str) and is_part and target not in references:
            references.add(target)
            waiting.append((definitions.get(target), False, 0))
        waiting += [(member, inside, level + 1) for member, inside in _members(schema, closes)]
    return frozenset(references)


def _check_level(level: int) -> None:
    if level > MOST_LEVELS:
        raise SchemaError(f"the schema is nested more than {MOST_LEVELS} deep: make it flatter")


# ---- rewriting ----


def _changed(schema: Schema, word: str, change: Callable[[Any], Any]) -> Any:
    """What is inside of a keyword, with the change applied to each schema."""
    part = schema[word]
    if word in _BY_NAME:
        return {name: change(member) for name, member in part.items()} if isinstance(part, dict) else part
    return [change(member) for member in part] if isinstance(part, list) else change(part)


def _drop_what_says_nothing(schema: Schema) -> None:
    if schema.get("minContains") == 0:
        schema.pop("contains", None), schema.pop("minContains")
    if schema.get("unevaluatedItems") is True:
        del schema["unevaluatedItems"]
    if schema.get("unevaluatedProperties") is True:
        del schema["unevaluatedProperties"]
    elif "unevaluatedProperties" in schema and not _COMPOSING & schema.keys():
        schema.setdefault("additionalProperties", schema.pop("unevaluatedProperties"))
    if schema.get("not") is False:
        del schema["not"]
    if isinstance(schema.get("required"), bool):  # draft 3; the enclosing object has a list instead
        del schema["required"]


class _Rewriter:
    """Rewrites one schema. Each rule takes a schema whose parts are already rewritten, and changes it in place."""

    def __init__(self, closes: bool, open_definitions: frozenset[str], any_of: bool) -> None:
        self.unenforced: dict[str, None] = {}
        self._closes = closes
        self._open = open_definitions
        self._any_of = any_of
        self._num_conditions = 0

    def rewrite(self, schema: Any, closes: bool, domains: Mapping[str, list[Any]], level: int) -> Any:
        """domains: the values of properties that have only a few, as the enclosing schemas list them."""
        _check_level(level)
        if not isinstance(schema, dict):
            return schema
        if schema.get("not") in ({}, True):
            return False
        rewritten = {word: value for word, value in schema.items() if word not in _ANNOTATIONS}
        domains = {**domains, **_domains(rewritten)}
        is_closable = closes and {"properties", "patternProperties"} & rewritten.keys() and not _adds_to(rewritten)
        self._rewrite_parts(rewritten, closes, domains, level + 1)
        if is_closable:
            rewritten.setdefault("additionalProperties", rewritten.pop("unevaluatedProperties", False))
        self._simplify(rewritten)
        self._apply_names(rewritten)
        self._apply_conditions(rewritten, domains)
        return rewritten

    def _rewrite_parts(self, schema: Schema, closes: bool, domains: Mapping[str, list[Any]], level: int) -> None:
        """Definitions, properties and items are objects of their own. Composed schemas describe the same object."""
        for word in _OWN:
            if word in schema:
                schema[word] = _changed(schema, word, lambda part: self.rewrite(part, self._closes, {}, level))
        for word in _DEFINITIONS:
            if isinstance(schema.get(word), dict):
                closed = {name: self._closes and f"#/{word}/{name}" not in self._open for name in schema[word]}
                schema[word] = {name: self.rewrite(schema[word][name], closed[name], {}, level) for name in closed}
        for word in _SAME:
            if word in schema:
                inside = _closes_inside(schema, word, closes)
                rewrite = partial(self.rewrite, closes=inside, domains=domains, level=level)
                schema[word] = _changed(schema, word, rewrite)

    def _leave_out(self, schema: Schema, *words: str) -> None:
        for word in words:
            if word in schema:
                del schema[word]
                self.unenforced[word] = None

    def _simplify(self, schema: Schema) -> None:
        _drop_what_says_nothing(schema)
        if self._any_of and "oneOf" in schema and "anyOf" not in schema:
            schema["anyOf"] = schema.pop("oneOf")
            self.unenforced["oneOf"] = None
        if "$schema" in schema and "json-schema.org/draft" not in str(schema["$schema"]):
            del schema["$schema"]
        if schema.get("format") not in FORMATS:
            schema.pop("format", None)
        if isinstance(schema.get("pattern"), str) and LOOKS_AROUND.search(schema["pattern"]):
            self._leave_out(schema, "pattern")
        self._limit_items(schema)
        self._leave_out(schema, *_NO_FORM, "unevaluatedProperties", "not")

    def _limit_items(self, schema: Schema) -> None:
        """uniqueItems: an array of distinct items has at most as many as there are values."""
        if not schema.get("uniqueItems"):
            schema.pop("uniqueItems", None)
            return
        values, most = _values(schema.get("items")), schema.get("maxItems")
        if values is not None and (not isinstance(most, int) or most > len(values)):
            schema["maxItems"] = most = len(values)
        if isinstance(most, int) and most <= 1:
            del schema["uniqueItems"]
        self._leave_out(schema, "uniqueItems")

    # ---- names of properties ----

    def _apply_names(self, schema: Schema) -> None:
        names = schema.pop("propertyNames", True)
        if names in (True, {}, {"type": "string"}):
            return
        listed, others = _values(names), schema.get("additionalProperties", True)
        if listed is not None and len(listed) <= MOST_NAMES and _may_copy(others, len(listed)):
            own = schema.get("properties", {})
            schema["properties"] = {str(name): own.get(str(name), others) for name in listed}
            schema["additionalProperties"] = False
        elif isinstance(names, dict) and names.keys() <= {"type", "pattern"} and "patternProperties" not in schema:
            schema["patternProperties"] = {names["pattern"]: others} if "pattern" in names else {}
            schema["additionalProperties"] = False
            if schema.get("properties"):
                self.unenforced["propertyNames"] = None  # for the properties that the schema lists itself
        else:
            self.unenforced["propertyNames"] = None

    # ---- conditions ----

    def _apply_conditions(self, schema: Schema, domains: Mapping[str, list[Any]]) -> None:
        """Each condition becomes an anyOf of the ways to meet it."""
        unions = []
        for word, condition, then, other in _conditions(schema):
            self._num_conditions += 1
            if self._num_conditions > MOST_CONDITIONS:
                raise SchemaError(f"the schema has more than {MOST_CONDITIONS} conditions: make it simpler")
            ways = _ways(condition, then, other, domains)
            if ways is None:
                self.unenforced[word] = None
            elif ways:
                unions.append({"anyOf": ways})
        if unions:
            schema["allOf"] = [*schema.get("allOf", ()), *unions]


def _conditions(schema: Schema) -> Iterator[tuple[str, Any, Any, Any]]:
    """The schema's conditions, removed from it: the keyword, the condition, and what must hold if it is met and what
    otherwise."""
    if "if" in schema:
        yield "if", schema.pop("if"), schema.pop("then", True), schema.pop("else", True)
    schema.pop("then", None), schema.pop("else", None)
    for word in ("dependentRequired", "dependentSchemas", "dependencies"):
        entries = schema.pop(word, {})
        for name, needed in entries.items() if isinstance(entries, dict) else ():
            yield word, {"required": [name]}, {"required": needed} if isinstance(needed, list) else needed, True


def _ways(condition: Any, then: Any, other: Any, domains: Mapping[str, list[Any]]) -> list[Schema] | None:
    """The ways to meet a condition: empty if it demands nothing, None if they cannot be listed."""
    if then in (True, {}) and other in (True, {}):
        return []
    failing = _negated(condition, domains)
    if failing is None or not _may_copy(other, len(failing)):
        return None
    return [_both(condition, then), *(_both(failure, other) for failure in failing)]


def _both(first: Any, second: Any) -> Schema:
    return first if second in (True, {}) else {"allOf": [first, second]}


def _negated(condition: Any, domains: Mapping[str, list[Any]]) -> list[Schema] | None:
    """All ways in which an object can fail a condition on which properties it has or which of a few values they
    have."""
    if not isinstance(condition, dict) or not condition.keys() <= {"type", "required", "properties"}:
        return None
    required, properties = condition.get("required", []), condition.get("properties", {})
    if not isinstance(required, list) or not isinstance(properties, dict) or not (required or properties):
        return None
    ways: list[Schema] = [{"properties": {name: False}} for name in required]
    for name, wanted in properties.items():
        values, domain = _values(wanted), domains.get(name)
        if values is None or domain is None or max(len(values), len(domain)) > MOST_VALUES:
            return None
        texts = set(map(json.dumps, values))
        rest = [value for value in domain if json.dumps(value) not in texts]
        ways += [{"properties": {name: {"enum": rest}}, "required": [name]}] if rest else []
    return ways


def _may_copy(part: Any, times: int) -> bool:
    """Whether that many copies stay within the bound: nested copies could grow without limit."""
    return len(json.dumps(part)) * times <= MOST_COPIED


def _values(schema: Any) -> list[Any] | None:
    return listed_values(schema) if isinstance(schema, dict) else None


def _domains(schema: Schema) -> dict[str, list[Any]]:
    own = schema.get("properties")
    domains = {name: _values(member) for name, member in own.items()} if isinstance(own, dict) else {}
    return {name: values for name, values in domains.items() if values is not None}


# ---- messages ----


def plain_complaint(text: str) -> str:
    """llguidance's error about a schema, without its position in the generated grammar and the grammar's text."""
    text = re.sub(r"^(?:at \d+\(\d+\): )?(?:failed to compile JSON schema: )?", "", " ".join(text.split()))
    text = re.split(r" \d+ \| |%json", text)[0].strip()
    if "oneOf" in text:
        return "the forms of a oneOf overlap, so it cannot be enforced that only one fits: use anyOf"
    if "not present in a registry" in text:
        return "a $ref or $schema names another document: nothing is fetched here, put it into $defs"
    return text or "it cannot be enforced"


def unenforced_sentence(words: Sequence[str]) -> str:
    listed = ", ".join(repr(word) for word in words)
    return f"{listed} cannot be enforced here"
