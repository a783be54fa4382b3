"""Schemas of clients become grammars that allow what fits them, and nothing else."""

import itertools
import json
from contextlib import suppress
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher

from surefoot.sampling.grammar import json_rule, lark_grammar
from surefoot.server.answer.json_schemas import (
    FORMATS,
    MOST_LEVELS,
    SchemaError,
    arguments_schema,
    plain_complaint,
    prepare,
)
from tests.server.answer.json_schemas import TOKENIZER

KEYWORDS = [
    "type", "properties", "patternProperties", "additionalProperties", "required", "propertyNames", "if", "then",
    "else", "allOf", "anyOf", "oneOf", "not", "$ref", "$defs", "items", "prefixItems", "uniqueItems", "maxItems",
    "enum", "const", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties", "contains",
    "minContains", "pattern", "format", "$schema", "a", "b",
]  # fmt: skip
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def thing(**more: Any) -> dict[str, Any]:
    """An object of few properties."""
    return {"type": "object", "additionalProperties": False, **more}


def matcher(schema: Any) -> LLMatcher:
    return LLMatcher(TOKENIZER, lark_grammar(f"start: answer\nanswer: {json_rule(schema)}"), log_level=0)


def accepts(schema: Any, value: Any) -> bool:
    found = matcher(schema)
    assert not found.is_error(), found.get_error()
    text = json.dumps(value).encode()
    return found.try_consume_tokens(list(text)) == len(text) and found.is_accepting()


KIND = {"enum": ["card", "cash"]}
PAYMENT = {"kind": KIND, "number": NUMBER, "note": TEXT}
IF_CARD = {"if": {"properties": {"kind": {"const": "card"}}}, "then": {"required": ["number"]}}
SCHEMAS: dict[str, dict[str, Any]] = {
    "if": thing(properties=PAYMENT, **IF_CARD),
    "if_required": thing(properties=PAYMENT, required=["kind"], **IF_CARD),
    "else": thing(properties=PAYMENT, **IF_CARD, **{"else": {"required": ["note"]}}),
    "if_has": thing(properties=PAYMENT, **{"if": {"required": ["number"]}, "then": {"required": ["note"]}}),
    "if_in_all_of": thing(properties=PAYMENT, allOf=[IF_CARD, {"required": ["kind"]}]),
    "if_flag": thing(
        properties={"note": TEXT, "flag": {"type": "boolean"}}, required=["flag"],
        **{"if": {"properties": {"flag": {"const": True}}}, "then": {"required": ["note"]}},
    ),
    "dependentRequired": thing(properties=PAYMENT, dependentRequired={"number": ["kind", "note"]}),
    "dependencies": thing(properties=PAYMENT, dependencies={"number": ["note"]}),
    "dependentSchemas": thing(
        properties=PAYMENT, dependentSchemas={"note": {"properties": {"kind": {"const": "cash"}}}},
    ),
    "propertyNames_listed": {"type": "object", "propertyNames": KIND, "additionalProperties": NUMBER},
    "propertyNames_pattern": {
        "type": "object", "propertyNames": {"pattern": "^[a-m]+$"}, "additionalProperties": NUMBER,
    },
    "propertyNames_any": {"type": "object", "propertyNames": TEXT, "additionalProperties": NUMBER},
    "uniqueItems_one": {"type": "array", "items": NUMBER, "maxItems": 1, "uniqueItems": True},
    "uniqueItems_off": {"type": "array", "items": NUMBER, "uniqueItems": False},
    "not_never": thing(properties={"kind": KIND, "note": {"not": {}}}),
    "unevaluatedProperties": {"type": "object", "properties": {"kind": KIND}, "unevaluatedProperties": False},
    "format_unknown": {"type": "string", "format": "card-number"},
    "required_old": thing(properties={"number": NUMBER, "note": {**TEXT, "required": True}}, required=["note"]),
    "schema_unknown": {"type": "string", "$schema": "urn:none"},
}  # fmt: skip
OLD = ("dependencies", "schema_unknown", "required_old")
CHOICES = [{}, {"kind": "card"}, {"kind": "cash"}], [{}, {"number": 1}], [{}, {"note": "x"}], [{}, {"flag": True}]
VALUES = [first | second | third | fourth for first, second, third, fourth in itertools.product(*CHOICES)]
VALUES += [{"flag": False}, {"card": 1}, {"zz": 1}, {"abc": 2}, {"card": "x"}, [], [1], [1, 1], [1, 2], "text", 3]


@pytest.mark.parametrize("name", SCHEMAS)
def test_rewritten_schema_means_the_same(name: str) -> None:
    """A library that checks values after the fact is the judge. Written in the schema's order, as grammars want it."""
    prepared = prepare(SCHEMAS[name])
    judge = jsonschema_rs.Draft202012Validator(SCHEMAS[name] if name not in OLD else _modern(SCHEMAS[name]))
    assert prepared.unenforced == ()
    verdicts = [(value, judge.is_valid(value)) for value in VALUES]
    assert {verdict for _, verdict in verdicts} == {False, True}
    assert [(value, accepts(prepared.schema, value)) for value in VALUES] == verdicts


def _modern(schema: dict[str, Any]) -> dict[str, Any]:
    """For the judge, who knows the words of one draft."""
    renamed = {"dependencies": "dependentRequired"}
    words = {renamed.get(word, word): value for word, value in schema.items() if word != "$schema"}
    return {
        word: _modern(value) if isinstance(value, dict) else value
        for word, value in words.items()
        if not (word == "required" and value is True)
    }


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "array", "items": NUMBER, "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "contains": NUMBER}, "contains"),
        ({"type": "object", "properties": {"a": {"not": TEXT}}}, "not"),
        ({"type": "string", "pattern": "^(?!x).*$"}, "pattern"),
        ({"type": "object", "propertyNames": {"format": "uuid"}}, "propertyNames"),
        (thing(properties={"a": TEXT, "b": TEXT}, **{"if": {"properties": {"a": {"pattern": "x"}}}, "then": {}}), None),
        (
            thing(
                properties={"a": TEXT, "b": TEXT},
                **{"if": {"properties": {"a": {"pattern": "x"}}}, "then": {"required": ["b"]}},
            ),
            "if",
        ),
    ],
    ids=str,
)
def test_keyword_without_an_equal_form_is_named(schema: dict[str, Any], word: str | None) -> None:
    prepared = prepare(schema)
    assert prepared.unenforced == ((word,) if word else ())
    assert not matcher(prepared.schema).is_error()


def test_unique_items_of_few_values_end() -> None:
    prepared = prepare({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True})
    assert accepts(prepared.schema, ["a", "b"])
    assert not accepts(prepared.schema, ["a", "b", "a"])


BASE = {"type": "object", "properties": {"a": TEXT}}
WITH_B = {"properties": {"b": TEXT}, "required": ["b"]}


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        (BASE, {"a": "x"}, {"a": "x", "z": 1}),
        ({"type": "object", "properties": {"a": TEXT}, "required": ["z"]}, {"z": 1}, {"a": "x"}),
        ({**BASE, "additionalProperties": True}, {"a": "x", "z": 1}, {"a": 1}),
        ({**BASE, "additionalProperties": NUMBER}, {"a": "x", "z": 1}, {"a": "x", "z": "y"}),
        ({"type": "object", "properties": {"map": {"type": "object"}}}, {"map": {"z": 1}}, {"z": 1}),
        ({"type": "object", "properties": {"in": BASE}}, {"in": {"a": "x"}}, {"in": {"z": 1}}),
        ({"type": "object", "properties": {"in": {"type": "array", "items": BASE}}}, {"in": [{}]}, {"in": [{"z": 1}]}),
        (
            {"type": "object", "properties": {"in": {"$ref": "#/$defs/Base"}}, "$defs": {"Base": BASE}},
            {"in": {"a": "x"}},
            {"in": {"z": 1}},
        ),
        ({"anyOf": [BASE, {"type": "object", "properties": {"b": TEXT}}]}, {"b": "x"}, {"z": 1}),
        # What is put together of parts has the properties of all.
        (
            {"allOf": [{"$ref": "#/$defs/Base"}, WITH_B], "$defs": {"Base": BASE}},
            {"a": "x", "b": "y"},
            {"a": "x"},
        ),
        ({**BASE, "if": {"required": ["a"]}, "then": WITH_B}, {"a": "x", "b": "y"}, {"a": "x"}),
        ({"properties": PAYMENT, **IF_CARD}, {"kind": "card", "number": 1}, {"kind": "cash", "z": 1}),
    ],
    ids=str,
)  # fmt: skip
def test_objects_are_closed(schema: dict[str, Any], fits: Any, does_not: Any) -> None:
    prepared = prepare(schema, closes=True)
    assert accepts(prepared.schema, fits)
    assert not accepts(prepared.schema, does_not)


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_tool_that_lists_no_arguments_has_none(parameters: dict[str, Any] | None) -> None:
    prepared = prepare(arguments_schema(parameters), closes=True)
    assert accepts(prepared.schema, {})
    assert not accepts(prepared.schema, {"z": 1})


def test_annotations_are_left_out() -> None:
    """But not a property that has such a name."""
    schema = {"type": "object", "description": "long", "properties": {"title": {"type": "string", "title": "Title"}}}
    assert prepare(schema).schema == {"type": "object", "properties": {"title": TEXT}}


@pytest.mark.parametrize("name", ["date", "uri", "uuid", "color", "int32", "byte"])
def test_formats_are_those_that_grammars_know(name: str) -> None:
    assert (name in FORMATS) == (not matcher({"type": "string", "format": name}).is_error())


@pytest.mark.parametrize("schema", [{"type": "frob"}, {"oneOf": [TEXT, TEXT]}, {"$ref": "https://example.org/a.json"}])
def test_complaints_show_no_grammar(schema: dict[str, Any]) -> None:
    found = matcher(prepare(schema).schema)
    assert found.is_error()
    complaint = plain_complaint(found.get_error())
    assert complaint
    for inner in ("%json", "answer:", "start:", "x-guidance", " | ", "coerce"):
        assert inner not in complaint


def test_overlapping_forms_as_any_of() -> None:
    schema = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 3}]}
    prepared = prepare(schema, any_of=True)
    assert prepared.unenforced == ("oneOf",)
    assert accepts(prepared.schema, "ab")


@pytest.mark.parametrize("word", ["items", "not", "additionalProperties", "if"])
def test_deep_schema_is_refused(word: str) -> None:
    schema: dict[str, Any] = TEXT
    for _ in range(10 * MOST_LEVELS):
        schema = {word: schema}
    if word != "not":  # left out, whatever it holds
        with pytest.raises(SchemaError, match="deep"):
            prepare(schema)
        with pytest.raises(SchemaError, match="deep"):
            prepare(schema, closes=True)
    else:
        assert prepare(schema).unenforced == ("not",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["a", "object", "#/$defs/a", "^a$", "(?=a)"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(KEYWORDS), JSON, max_size=6), st.booleans(), st.booleans())
def test_any_json_is_a_schema_or_refused(schema: dict[str, Any], closes: bool, any_of: bool) -> None:
    with suppress(SchemaError):
        json.dumps(prepare(schema, closes=closes, any_of=any_of).schema)


@pytest.mark.parametrize("word", ["propertyNames", "else"])
def test_parts_that_are_copied_do_not_grow_without_bound(word: str) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(20):
        if word == "else":
            schema = {"if": {"required": ["a", "b", "c"]}, "then": {"required": ["d"]}, "else": schema}
        else:
            schema = {"propertyNames": {"enum": list("abcdefgh")}, "additionalProperties": schema}
    prepared = prepare(schema)
    assert prepared.unenforced
    assert len(json.dumps(prepared.schema)) < 1 << 20


def test_many_conditions_are_refused() -> None:
    with pytest.raises(SchemaError, match="conditions"):
        prepare({"allOf": [IF_CARD] * 1000, "properties": PAYMENT})
