"""JSON schemas of clients, rewritten so that a grammar can hold answers to them.

llguidance refuses keywords that it cannot hold an answer to. Most of what clients send with such a keyword has an equal
form without it, which this module finds. What is left has no such form: the keyword is left out, and named, so that the
caller can refuse the schema or say that it is held to in part.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

MOST_LEVELS = 64
MOST_NAMES = 256  # of a propertyNames that lists them: each becomes a property
MOST_VALUES = 64  # of a property that conditions ask about
MOST_CONDITIONS = 32
MOST_COPIED = 64 << 10  # characters that writing a part several times may come to
# Words about a schema, which hold answers to nothing.
_ANNOTATIONS = frozenset({
    "$comment", "default", "deprecated", "description", "example", "examples", "readOnly", "title", "writeOnly",
    "x-guidance",
})  # fmt: skip
# Of other formats the specification says that they are annotations.
FORMATS = frozenset({
    "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid",
})  # fmt: skip
_NO_FORM = ("contains", "minContains", "maxContains", "unevaluatedItems", "$dynamicRef", "$recursiveRef")
# Beside one of these, the schema's own properties are not all that an object may have.
_COMPOSING = frozenset({"$ref", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies"})
_MAPS = ("properties", "patternProperties")
_DEFINITIONS = ("$defs", "definitions")
_LOOKS_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])|\\[1-9]|\\k<")

Schema = dict[str, Any]


class SchemaError(ValueError):
    """The schema cannot be used; the message says why."""


@dataclass(frozen=True)
class Prepared:
    """unenforced: keywords that nothing holds answers to, each once."""

    schema: Schema
    unenforced: tuple[str, ...]


def arguments_schema(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Of a tool's arguments: an object that lists no properties has none."""
    if not parameters:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    is_bare = parameters.get("type") == "object" and not _COMPOSING & parameters.keys()
    return {"properties": {}, **parameters} if is_bare else dict(parameters)


def prepare(schema: Mapping[str, Any], *, closes: bool = False, any_of: bool = False) -> Prepared:
    """closes: an object that lists its properties has no others, unless it says so. What fits then, fits the schema.
    any_of: several of a oneOf's forms may fit at once."""
    try:
        rewriting = _Rewriting(closes, _open_definitions(schema) if closes else frozenset(), any_of)
        made = rewriting.rewrite(dict(schema), closes, {}, 0)
    except (AttributeError, TypeError) as error:  # a keyword with a value of another type than it has
        raise SchemaError("it is no JSON schema: check the types of its keywords' values") from error
    if not isinstance(made, dict):
        raise SchemaError("nothing fits the schema: correct its 'not'")
    return Prepared(made, tuple(rewriting.unenforced))


# ---- which objects to close ----


def _members(schema: Schema, closes: bool) -> Iterator[tuple[Any, bool]]:
    """Schemas inside this one, without definitions, and whether objects there are to be closed: not those that are but
    part of what an object must fit."""
    for word in _MAPS:
        if isinstance(schema.get(word), dict):
            yield from ((one, True) for one in schema[word].values())
    for word in ("additionalProperties", "items", "additionalItems"):
        yield schema.get(word), True
    for word in ("prefixItems", "items"):
        yield from ((one, True) for one in _listed(schema, word))
    for word in ("allOf", "anyOf", "oneOf"):
        yield from ((one, _closes_inside(schema, word, closes)) for one in _listed(schema, word))
    for word in ("if", "then", "else"):
        yield schema.get(word), False
    for word in ("dependentSchemas", "dependencies"):
        if isinstance(schema.get(word), dict):
            yield from ((one, False) for one in schema[word].values())


def _closes_inside(schema: Schema, word: str, closes: bool) -> bool:
    """A union's forms are whole objects if nothing beside it tells of properties. Parts of an allOf are not, nor what
    a condition asks for."""
    if word not in ("allOf", "anyOf", "oneOf"):
        return False
    beside = (_COMPOSING | {"properties", "patternProperties"}) & schema.keys() - {word}
    return closes and not beside and (word != "allOf" or len(_listed(schema, word)) == 1)


def _adds_to(schema: Schema) -> bool:
    """Whether what stands beside its properties tells of more of them."""
    names = set(schema.get("properties", ()))
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        told = {*part.get("properties", ()), *_listed(part, "required")}
        if "$ref" in part or told - names or (part is not schema and _MAPS[1] in part):
            return True
        waiting += [one for word in ("allOf", "anyOf", "oneOf") for one in _listed(part, word)]
        waiting += [part.get(word) for word in ("if", "then", "else")]
        for word in ("dependentSchemas", "dependencies"):
            waiting += part[word].values() if isinstance(part.get(word), dict) else []
    return False


def _listed(schema: Schema, word: str) -> list[Any]:
    found = schema.get(word)
    return found if isinstance(found, list) else []


def _open_definitions(root: Mapping[str, Any]) -> frozenset[str]:
    """References to definitions that stay open: they are but part of what some object must fit."""
    found: set[str] = set()
    definitions = {
        f"#/{word}/{name}": one
        for word in _DEFINITIONS
        if isinstance(root.get(word), dict)
        for name, one in root[word].items()
    }
    waiting = [(dict(root), True, 0), *((one, True, 0) for one in definitions.values())]
    while waiting:
        schema, closes, level = waiting.pop()
        if not isinstance(schema, dict):
            continue
        _check_level(level)
        target = schema.get("$ref")
        is_part = not closes or {"properties", "allOf", "anyOf", "oneOf"} & schema.keys()
        if isinstance(target, str) and is_part and target not in found:
            found.add(target)
            waiting.append((definitions.get(target), False, 0))
        waiting += [(one, inside, level + 1) for one, inside in _members(schema, closes)]
    return frozenset(found)


def _check_level(level: int) -> None:
    if level > MOST_LEVELS:
        raise SchemaError(f"the schema is nested more than {MOST_LEVELS} deep: make it flatter")


# ---- rewriting ----


def _each(part: Any, change: Callable[[Any], Any]) -> Any:
    """One schema, or a list of them."""
    return [change(one) for one in part] if isinstance(part, list) else change(part)


def _replace(made: Schema, word: str, change: Callable[[Any], Any]) -> None:
    """What schemas a word gives to names, if it does."""
    if isinstance(made.get(word), dict):
        made[word] = {name: change(one) for name, one in made[word].items()}


def _drop_what_says_nothing(made: Schema) -> None:
    if made.get("minContains") == 0:
        made.pop("contains", None), made.pop("minContains")
    if made.get("unevaluatedItems") is True:
        del made["unevaluatedItems"]
    if made.get("unevaluatedProperties") is True:
        del made["unevaluatedProperties"]
    elif "unevaluatedProperties" in made and not _COMPOSING & made.keys():
        made.setdefault("additionalProperties", made.pop("unevaluatedProperties"))
    if made.get("not") is False:
        del made["not"]
    if isinstance(made.get("required"), bool):  # of an older draft: the object around this one says it
        del made["required"]


class _Rewriting:
    """One schema's. Every rule takes a schema whose parts are rewritten already, and changes it in place."""

    def __init__(self, closes: bool, open_definitions: frozenset[str], any_of: bool) -> None:
        self.unenforced: dict[str, None] = {}
        self._closes = closes
        self._open = open_definitions
        self._any_of = any_of
        self._num_conditions = 0

    def rewrite(self, schema: Any, closes: bool, domains: Mapping[str, list[Any]], level: int) -> Any:
        """domains: properties of the object at hand that have few values, as the schemas around this one say."""
        _check_level(level)
        if not isinstance(schema, dict):
            return schema
        if schema.get("not") in ({}, True):
            return False
        made = {word: value for word, value in schema.items() if word not in _ANNOTATIONS}
        domains = {**domains, **_domains(made)}
        is_closable = closes and any(word in made for word in _MAPS) and not _adds_to(made)
        self._rewrite_parts(made, closes, domains, level + 1)
        if is_closable:
            made.setdefault("additionalProperties", made.pop("unevaluatedProperties", False))
        self._simplify(made)
        self._apply_names(made)
        self._apply_conditions(made, domains)
        return made

    def _rewrite_parts(self, made: Schema, closes: bool, domains: Mapping[str, list[Any]], level: int) -> None:
        """Properties and items are objects of their own; what is put together with the schema tells of the same one."""

        def own(part: Any, is_closed: bool = True) -> Any:
            return self.rewrite(part, self._closes and is_closed, {}, level)

        def beside(part: Any, word: str) -> Any:
            return self.rewrite(part, _closes_inside(made, word, closes), domains, level)

        for word in _MAPS:
            _replace(made, word, own)
        for word in _DEFINITIONS:
            if isinstance(made.get(word), dict):
                names = {name: f"#/{word}/{name}" not in self._open for name in made[word]}
                made[word] = {name: own(made[word][name], is_closed) for name, is_closed in names.items()}
        for word in ("additionalProperties", "items", "additionalItems", "propertyNames", "prefixItems"):
            made |= {word: _each(made[word], own)} if word in made else {}
        for word in ("if", "then", "else", "allOf", "anyOf", "oneOf"):
            made |= {word: _each(made[word], partial(beside, word=word))} if word in made else {}
        for word in ("dependentSchemas", "dependencies"):
            _replace(made, word, partial(beside, word=word))

    def _leave_out(self, made: Schema, *words: str) -> None:
        for word in words:
            if word in made:
                del made[word]
                self.unenforced[word] = None

    def _simplify(self, made: Schema) -> None:
        _drop_what_says_nothing(made)
        if self._any_of and "oneOf" in made and "anyOf" not in made:
            made["anyOf"] = made.pop("oneOf")
            self.unenforced["oneOf"] = None
        if "$schema" in made and "json-schema.org/draft" not in str(made["$schema"]):
            del made["$schema"]
        if made.get("format") not in FORMATS:
            made.pop("format", None)
        if isinstance(made.get("pattern"), str) and _LOOKS_AROUND.search(made["pattern"]):
            self._leave_out(made, "pattern")
        self._limit_items(made)
        self._leave_out(made, *_NO_FORM, "unevaluatedProperties", "not")

    def _limit_items(self, made: Schema) -> None:
        """Items that differ are at most as many as the values that they can have."""
        if not made.get("uniqueItems"):
            made.pop("uniqueItems", None)
            return
        values, most = _values(made.get("items")), made.get("maxItems")
        if values is not None and (not isinstance(most, int) or most > len(values)):
            made["maxItems"] = most = len(values)
        if isinstance(most, int) and most <= 1:
            del made["uniqueItems"]
        self._leave_out(made, "uniqueItems")

    # ---- names of properties ----

    def _apply_names(self, made: Schema) -> None:
        names = made.pop("propertyNames", True)
        if names in (True, {}, {"type": "string"}):
            return
        listed, others = _values(names), made.get("additionalProperties", True)
        if listed is not None and len(listed) <= MOST_NAMES and _may_copy(others, len(listed)):
            own = made.get("properties", {})
            made["properties"] = {str(name): own.get(str(name), others) for name in listed}
            made["additionalProperties"] = False
        elif isinstance(names, dict) and names.keys() <= {"type", "pattern"} and "patternProperties" not in made:
            made["patternProperties"] = {names["pattern"]: others} if "pattern" in names else {}
            made["additionalProperties"] = False
            if made.get("properties"):
                self.unenforced["propertyNames"] = None  # of those that have names of their own
        else:
            self.unenforced["propertyNames"] = None

    # ---- conditions ----

    def _apply_conditions(self, made: Schema, domains: Mapping[str, list[Any]]) -> None:
        """Each condition becomes the ways in which it can be met."""
        ways = [_either(condition, then, other, domains) for condition, then, other in _conditions(made)]
        self._num_conditions += len(ways)
        if self._num_conditions > MOST_CONDITIONS:
            raise SchemaError(f"the schema has more than {MOST_CONDITIONS} conditions: make it simpler")
        for choice, word in ways:
            if choice is None:
                self.unenforced[word] = None
        found = [{"anyOf": choice} for choice, _ in ways if choice]
        if found:
            made["allOf"] = [*made.get("allOf", ()), *found]


@dataclass(frozen=True)
class _Condition:
    """word: the keyword that it came by."""

    word: str
    schema: Any


def _conditions(made: Schema) -> Iterator[tuple[_Condition, Any, Any]]:
    """Taken out of the schema, as what must hold if a condition does, and what else."""
    if "if" in made:
        yield _Condition("if", made.pop("if")), made.pop("then", True), made.pop("else", True)
    made.pop("then", None), made.pop("else", None)
    for word in ("dependentRequired", "dependentSchemas", "dependencies"):
        entries = made.pop(word, {})
        for name, needed in entries.items() if isinstance(entries, dict) else ():
            then = {"required": needed} if isinstance(needed, list) else needed
            yield _Condition(word, {"required": [name]}), then, True


def _either(
    condition: _Condition, then: Any, other: Any, domains: Mapping[str, list[Any]]
) -> tuple[list[Schema] | None, str]:
    """The ways to meet it: none if it asks for nothing, None if they cannot be listed."""
    if then in (True, {}) and other in (True, {}):
        return [], condition.word
    failing = _negated(condition.schema, domains)
    if failing is None or not _may_copy(other, len(failing)):
        return None, condition.word
    return [_both(condition.schema, then), *(_both(one, other) for one in failing)], condition.word


def _both(first: Any, second: Any) -> Schema:
    return first if second in (True, {}) else {"allOf": [first, second]}


def _negated(condition: Any, domains: Mapping[str, list[Any]]) -> list[Schema] | None:
    """All ways in which an object may fail a condition about which properties it has, and which of a few values."""
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
    """Parts within parts would else grow without bound."""
    return len(json.dumps(part)) * times <= MOST_COPIED


def _values(schema: Any) -> list[Any] | None:
    """All values that fit, if they are few and listed."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    return [False, True] if schema.get("type") == "boolean" else None


def _domains(schema: Schema) -> dict[str, list[Any]]:
    own = schema.get("properties")
    found = {name: _values(one) for name, one in own.items()} if isinstance(own, dict) else {}
    return {name: values for name, values in found.items() if values is not None}


# ---- telling ----


def plain_complaint(text: str) -> str:
    """llguidance's words about a schema, without the place and the text of the grammar that was made of it."""
    text = re.sub(r"^(?:at \d+\(\d+\): )?(?:failed to compile JSON schema: )?", "", " ".join(text.split()))
    text = re.split(r" \d+ \| |%json", text)[0].strip()
    if "oneOf" in text:
        return "the forms of a oneOf overlap, so that it cannot be told that only one fits: use anyOf"
    if "not present in a registry" in text:
        return "a $ref or $schema names another document: nothing is fetched here, put it into $defs"
    return text or "it cannot be held to"


def unenforced_sentence(words: Sequence[str]) -> str:
    listed = ", ".join(repr(word) for word in words)
    return f"answers cannot be held to {listed} here"
