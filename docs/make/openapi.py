"""The HTTP reference as Markdown, from the schema that the server itself gives out at /openapi.json.

python docs/make/openapi.py > http.md
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from unittest.mock import MagicMock

import httpx

from surefoot.server.app import make_app
from surefoot.server.settings import ServerSettings

Schema = Mapping[str, Any]
OBJECTS = "#/components/schemas/"
BOUNDS = {
    "minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "minItems": "at least {} items",
    "maxItems": "at most {} items", "minLength": "at least {} characters", "maxLength": "at most {} characters",
    "maxProperties": "at most {} entries",
}  # fmt: skip
LARGEST = 2**31 - 1  # bounds from here on say only that a number is a number
# The first part of a path that a group of routes has in common, and the group's heading.
GROUPS = {
    "/v1/messages": "Anthropic", "/v1/files": "Files and batches", "/v1/batches": "Files and batches",
    "/v1/rerank": "Reranking", "/v2/rerank": "Reranking", "/rerank": "Reranking",
    "/v1/": "OpenAI", "/api/": "Ollama", "/infill": "llama-server", "/": "Tokens and operation",
}  # fmt: skip
HEAD = """# HTTP reference

Every route, field and bound, as the server's own `/openapi.json` has them. [HTTP API](../http.md) says
how the routes behave. Errors have the status and the form of the API that the route belongs to.
"""


def fetch_schema() -> dict[str, Any]:
    """From the real application; no model is loaded, since no route is called."""
    service = MagicMock(settings=ServerSettings(), is_draining=False, llm=MagicMock(max_running=1))

    async def get() -> dict[str, Any]:
        transport = httpx.ASGITransport(make_app(service, None, None))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            reply = await client.get("/openapi.json")
            reply.raise_for_status()
            return dict(reply.json())

    return asyncio.run(get())


def render(schema: Schema) -> str:
    groups: dict[str, list[str]] = {name: [] for name in dict.fromkeys(GROUPS.values())}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            groups[_group(path)] += _operation(method, path, operation)
    parts = [HEAD]
    for name in ("OpenAI", *(name for name in groups if name != "OpenAI")):
        parts += [f"## {name}\n", *groups[name]]
    parts.append("## Objects\n")
    for name, definition in sorted(schema["components"]["schemas"].items()):
        parts += [f"### {name}\n", *_fields(definition)]
    return "\n".join(parts)


def _group(path: str) -> str:
    return next(name for start, name in GROUPS.items() if path.startswith(start))


def _operation(method: str, path: str, operation: Schema) -> Iterator[str]:
    yield f"### {method.upper()} `{path}`\n"
    if text := operation.get("description"):
        yield f"{text}\n"
    for parameter in operation.get("parameters", ()):
        yield f"`{parameter['name']}` in the {parameter['in']}: {_type(parameter['schema'])}.\n"
    body = operation.get("requestBody", {}).get("content", {})
    reply = operation["responses"].get("200", {}).get("content", {})
    words = [
        f"{title}: {kinds}." for title, content in (("Body", body), ("Answer", reply)) if (kinds := _kinds(content))
    ]
    if words:
        yield " ".join(words) + "\n"


def _kinds(content: Mapping[str, Schema]) -> str:
    """As JSON unless another media type says more."""
    found = []
    for media, value in content.items():
        kind = _type(value.get("schema", {}))
        found.append(kind if media == "application/json" else f"`{media}`")
    return ", or ".join(dict.fromkeys(found))


def _fields(definition: Schema) -> Iterator[str]:
    properties: Mapping[str, Schema] = definition.get("properties", {})
    if text := definition.get("description"):
        yield f"{text}\n"
    if not properties:
        yield f"{_type(definition)}\n"
        return
    required = set(definition.get("required", ()))
    rows = [_row(name, value, name in required) for name, value in properties.items()]
    yield "\n".join(["| field | type | |", "|---|---|---|", *rows]) + "\n"


def _row(name: str, value: Schema, is_required: bool) -> str:
    notes = ["**required**"] if is_required else []
    if value.get("default") is not None:
        notes.append(f"default `{json.dumps(value['default'])}`")
    if value.get("description"):
        notes.append(str(value["description"]))
    return f"| `{name}` | {_type(value)} | {'; '.join(notes)} |"


def _type(value: Schema) -> str:
    if "$ref" in value:
        name = str(value["$ref"]).removeprefix(OBJECTS)
        return f"[{name}](#{name.lower()})"
    if choices := value.get("anyOf") or value.get("oneOf") or value.get("allOf"):
        return " or ".join(dict.fromkeys(_type(one) for one in choices if one.get("type") != "null"))
    if "const" in value:
        return f"`{value['const']!r}`"
    if "enum" in value:
        return " or ".join(f"`{one!r}`" for one in value["enum"])
    return _plain(value) + _bounds(value)


def _plain(value: Schema) -> str:
    kind = value.get("type", "anything")
    if kind == "array":
        return f"list of {_type(value.get('items', {}))}"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"object of {_type(value['additionalProperties'])}"
    return str(kind)


def _bounds(value: Schema) -> str:
    found: Iterable[str] = (
        words.format(f"{value[name]:g}" if value[name] < 1e6 else f"{int(value[name]):,}")
        for name, words in BOUNDS.items()
        if name in value and value[name] < LARGEST
    )
    text = ", ".join(found)
    return f" ({text})" if text else ""


if __name__ == "__main__":
    print(render(fetch_schema()))
