"""Bodies that are expensive to read: every field of every route with as many wrong items as fit.

Routes and fields come from the server's own OpenAPI schema, so that a new one is covered by itself.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from surefoot.core.json_bounds import MOST_KEYS, MOST_NODES, MOST_NUMBERS, MOST_STRINGS

Json = dict[str, Any]
MOST_BYTES = 4 << 20
HOLE = "@hole@"
MAX_LEVELS = 7  # of a field's place in a body
ITEMS = (
    "0", "300", "-1", "1.5", "true", "null", '""', '"ab"', "[]", "{}", "[[]]", '[""]', '{"type":"x"}',
    '{"type":"text"}', '{"text":0}', '{"role":"user"}', '{"id":"","function":{}}',
)  # fmt: skip


@dataclass(frozen=True)
class HostileField:
    """A field of a route's body. body: JSON with a hole in it. items: valid ones, as JSON."""

    route: str
    path: str
    body: str
    items: tuple[str, ...]

    def filled(self, item: str, count: int, *, as_map: bool) -> bytes:
        if as_map:
            inner = ",".join(f'"{number:x}":{item}' for number in range(count))
            return self.body.replace(json.dumps(HOLE), f"{{{inner}}}").encode()
        return self.body.replace(json.dumps(HOLE), f"[{','.join([item] * count)}]").encode()


def counts_of(item: str, *, as_map: bool) -> tuple[int, int]:
    """How many of the item fit a body, and how many a server still parses."""
    num_fit = (MOST_BYTES - 4096) // (len(item) + 1 + 8 * as_map)
    strings, keys = item.count('"') // 2 + as_map, item.count(":") + as_map
    used = [
        (MOST_NODES, item.count("[") + item.count("{")), (MOST_STRINGS, strings), (MOST_KEYS, keys),
        (MOST_NUMBERS, item.count(",") + 1),
    ]  # fmt: skip
    return num_fit, min(num_fit, *((most - 256) // each for most, each in used if each))


def hostile_fields(openapi: Json) -> list[HostileField]:
    """The fields of all routes with JSON bodies."""
    fields = []
    for route, operations in openapi["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {})
        if "application/json" in content:
            walk = _Walk(openapi["components"]["schemas"])
            places = walk.places(content["application/json"]["schema"], route)
            fields += [HostileField(route, path, json.dumps(body), items) for path, body, items in places]
    return fields


class _Walk:
    def __init__(self, components: Json) -> None:
        self._components = components

    def places(self, schema: Json, path: str, level: int = 0) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
        """Paths of the fields, a valid body with a hole there, and items that are valid there."""
        if level > MAX_LEVELS:
            return
        for form in self._forms(schema):
            if form.get("type") == "array":
                yield path, HOLE, tuple(json.dumps(self.minimal(item)) for item in self._forms(form.get("items", {})))
                for inner, body, items in self.places(form.get("items", {}), f"{path}[]", level + 1):
                    yield inner, [body], items
            elif form.get("type") == "object":
                yield path, HOLE, ("null",)
                required = self.minimal(form)
                for name, field in form.get("properties", {}).items():
                    for inner, body, items in self.places(field, f"{path}.{name}", level + 1):
                        yield inner, {**required, name: body}, items
            elif level:
                yield path, HOLE, ()

    def _forms(self, schema: Json) -> list[Json]:
        """What a union may be; a schema that is no union alone."""
        if "$ref" in schema:
            return self._forms(self._components[schema["$ref"].rsplit("/", 1)[1]])
        union = schema.get("anyOf") or schema.get("oneOf")
        forms = [form for member in union for form in self._forms(member)] if union else [schema]
        return [form for form in forms if form.get("type") != "null"]

    def minimal(self, schema: Json) -> Any:
        """A small valid value."""
        form = next(iter(self._forms(schema)), {})
        if "const" in form or "enum" in form:
            return form.get("const", (form.get("enum") or [None])[0])
        kind = form.get("type", "object")
        if kind == "object":
            fields = form.get("properties", {})
            value = {name: self.minimal(fields[name]) for name in form.get("required", ())}
            return value | ({"content": "a"} if "role" in value else {})
        if kind == "array":
            return [self.minimal(form.get("items", {}))] * form.get("minItems", 0)
        return {"string": "a", "boolean": False}.get(kind, form.get("minimum", 1))
