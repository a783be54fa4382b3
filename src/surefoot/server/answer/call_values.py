"""What an argument may be, by its schema, for the forms that write strings without quotes.

There a text such as `3` or `null` is a string or not as the schema says. Where it allows both, what looks like another
value is one, and the grammar holds such texts to what the schema allows.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Schema = Mapping[str, Any]
TYPES = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?"
_LIMITS = re.compile(r'"(minimum|maximum|exclusiveMinimum|exclusiveMaximum|multipleOf)":')
_DEFINITIONS = ("$defs", "definitions")
_PARTS = ("allOf", "anyOf", "oneOf")
_TYPES_OF = {
    type(None): frozenset({"null"}), bool: frozenset({"boolean"}), int: frozenset({"integer", "number"}),
    float: frozenset({"number"}), str: frozenset({"string"}), dict: frozenset({"object"}), list: frozenset({"array"}),
}  # fmt: skip
_MOST_LEVELS = 16  # of references to references
MOST_ALTERNATIVES = 256  # of a union, and parts of an object's schema


class TooComplex(ValueError):
    """Definitions that refer to each other come to more than is worked out."""


@dataclass(frozen=True)
class Slot:
    """A place for one value. schema: with the definitions that it refers to."""

    schema: Schema

    @cached_property
    def types(self) -> frozenset[str]:
        """That are told apart. A number with limits is a string where strings are allowed: `1` would need them too."""
        types = frozenset[str]().union(*map(_own_types, alternatives(self.schema)))
        has_limits = "string" in types and _LIMITS.search(json.dumps(self.schema))
        return types - {"integer", "number"} if has_limits else types

    @cached_property
    def choices(self) -> list[Any] | None:
        """All values, if the schema lists them."""
        listed = [listed_values(part) for part in alternatives(self.schema)]
        return None if None in listed else [value for values in listed for value in values or ()]

    @cached_property
    def strings(self) -> tuple[Schema, ...]:
        """The parts of the schema that allow strings."""
        return tuple(part for part in alternatives(self.schema) if "string" in _own_types(part))

    def only(self, types: frozenset[str]) -> Schema | None:
        """The schema with only these types."""
        kept = [
            {**definitions_of(self.schema), **part, "type": sorted(own)}
            for part in alternatives(self.schema)
            if (own := _own_types(part) & self.types & types)
        ]
        return {**definitions_of(self.schema), "anyOf": kept} if len(kept) > 1 else next(iter(kept), None)

    def read(self, text: str, words: Sequence[str], write: Callable[[Any], str]) -> str:
        """A text that is no object or array, as JSON. words: for true, false and null. write: as the form does it."""
        for choice in self.choices or ():
            if write(choice) == text:
                return as_json(choice)
        for word, value in zip(words, (True, False, None), strict=True):
            if text == word and type_of(value) & self.types:
                return as_json(value)
        if re.fullmatch(NUMBER, text) and type_of(json.loads(text)) & self.types:
            return text
        return as_json(text) if "string" in self.types else text


def as_json(value: Any) -> str:
    """Without escapes of other alphabets, as models write."""
    return json.dumps(value, ensure_ascii=False)


def type_of(value: Any) -> frozenset[str]:
    """The types in JSON schemas that a value has."""
    return _TYPES_OF[type(value)]


def listed_values(schema: Schema) -> list[Any] | None:
    """All values that fit the schema, if it lists them."""
    if "const" in schema:
        return [schema["const"]]
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    if schema.get("type") == "boolean":
        return [True, False]
    return [None] if schema.get("type") == "null" else None


def definitions_of(schema: Schema) -> dict[str, Any]:
    return {word: schema[word] for word in _DEFINITIONS if word in schema}


def member(root: Schema, part: Any) -> Slot:
    """The place that a part of a schema describes."""
    part = dict(part) if isinstance(part, Mapping) else {}
    return Slot({**definitions_of(root), **part} if "$ref" in json.dumps(part) else part)


def resolved(part: Any, root: Schema) -> Schema:
    """The schema itself, not a reference to it."""
    for _ in range(_MOST_LEVELS):
        target = part.get("$ref") if isinstance(part, Mapping) else None
        if not isinstance(target, str):
            break
        _, word, *names = [*target.split("/"), ""][:3]
        part = root.get(word, {}).get(names[0], {}) if names and word in _DEFINITIONS else {}
    return part if isinstance(part, Mapping) else {}


def _own_types(schema: Schema) -> frozenset[str]:
    """Without regard to unions."""
    if "const" in schema:
        return type_of(schema["const"])
    if isinstance(schema.get("enum"), list):
        return frozenset().union(*map(type_of, schema["enum"]))
    named = schema.get("type", ())
    types = frozenset([named] if isinstance(named, str) else named) & TYPES or TYPES
    return types | {"integer"} if "number" in types else types


def alternatives(schema: Schema) -> list[Schema]:
    """The schemas of a union, or the schema itself; what an allOf adds is only looked at for types. A definition counts
    once, however often the union names it. Raises TooComplex."""
    found: list[Schema] = []
    waiting, seen = deque[Any]([schema]), set[int]()
    while waiting:
        part = resolved(waiting.popleft(), schema)
        if id(part) in seen:
            continue
        seen.add(id(part))
        _check_parts(len(seen))
        union = next((part[word] for word in ("anyOf", "oneOf") if isinstance(part.get(word), list)), None)
        if union is not None:
            waiting.extendleft(reversed(union))
        else:
            found.append(_merged(part, schema))
    return found or [{}]  # a union of itself alone says nothing


def _check_parts(count: int) -> None:
    if count > MOST_ALTERNATIVES:
        raise TooComplex


def _merged(part: Schema, root: Schema) -> Schema:
    """With what its allOf adds."""
    if not isinstance(part.get("allOf"), list):
        return part
    merged = {word: value for word, value in part.items() if word != "allOf"}
    for inner in part["allOf"]:
        merged = {**resolved(inner, root), **merged}
    return merged


@dataclass(frozen=True)
class ArgumentSlots:
    """The arguments that an object has."""

    slots: Mapping[str, Slot]
    required: frozenset[str]
    others: Slot | None  # what further arguments may be
    unenforced: tuple[str, ...] = ()  # keywords of the object that only its members are held to

    def slot(self, key: str) -> Slot:
        return self.slots.get(key) or self.others or Slot({})


def members_of(schema: Schema, root: Schema | None = None) -> ArgumentSlots:
    """Of the object that a schema describes; one with parts has the members of all its parts. Raises TooComplex."""
    root = schema if root is None else root
    slots: dict[str, Slot] = {}
    required: set[str] = set()
    words: dict[str, None] = {}
    others: Slot | None = None
    waiting, seen = deque([(resolved(schema, root), True)]), set[tuple[int, bool]]()
    while waiting:
        part, is_whole = waiting.popleft()
        if (id(part), is_whole) in seen:
            continue
        seen.add((id(part), is_whole))
        _check_parts(len(seen))
        for key, value in part.get("properties", {}).items():
            slots.setdefault(key, member(root, value))
        required |= set(part.get("required", ())) if is_whole else set()
        words |= dict.fromkeys(word for word in ("minProperties", "maxProperties", "patternProperties") if word in part)
        if is_whole and "properties" not in part and "patternProperties" not in part:
            extra = part.get("additionalProperties", True)
            others = member(root, extra) if extra is not False and not (set(_PARTS) & part.keys()) else None
        for word in _PARTS:
            if isinstance(part.get(word), list):
                words |= {word: None} if len(part[word]) > 1 else {}
                waiting += [(resolved(inner, root), word == "allOf" or len(part[word]) == 1) for inner in part[word]]
    return ArgumentSlots(slots, frozenset(required & slots.keys()), None if slots else others, tuple(words))
