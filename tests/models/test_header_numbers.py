"""Every number of a model's header, replaced by others: the config is read, or refused with a sentence."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from surefoot.models import read_config
from surefoot.models.shapes import check_shapes
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from tests.models import converted, tiny

NUMBERS = (0, 1, 2, 3, 7, 16, 127, 1000, 65536, 2**31, 2**63, -1, 0.25, 1e30, None)
Place = tuple[Any, ...]
# Fields by which others are read when a file leaves them out.
STATED = ("attention.key_length", "attention.value_length", "rope.dimension_count", "head_dim")


def places(tree: Any, path: Place = ()) -> Iterator[Place]:
    """Where the tree has numbers."""
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(min(len(tree), 2)):
            yield from places(tree[key], (*path, key))
    elif isinstance(tree, int | float) and path:
        yield path


def changed(tree: dict[str, Any], path: Place, number: Any) -> dict[str, Any]:
    """The tree with another number; None: without the field."""
    tree = copy.deepcopy(tree)
    inner: Any = tree
    for key in path[:-1]:
        inner = inner[key]
    if number is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = number
    return tree


def variants(tree: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All changes of one number, with and without the fields that state what is else computed."""
    shorter = {key: value for key, value in tree.items() if not key.endswith(STATED)}
    for base in (tree, shorter) if len(shorter) < len(tree) else (tree,):
        for path in places(base):
            for number in NUMBERS:
                yield f"{path} = {number}", changed(base, path, number)


def faults(trees: Iterator[tuple[str, dict[str, Any]]], read: Any) -> list[str]:
    wrong = []
    for name, tree in trees:
        try:
            read(tree)
        except ValueError as error:
            wrong += [] if len(str(error)) > 10 else [f"{name}: {error!r}"]
        except Exception as error:
            wrong.append(f"{name}: {error!r}")
    return wrong


@pytest.mark.parametrize("name", converted.NAMES)
def test_gguf(name: str) -> None:
    header = json.loads(converted.HEADERS.read_text())[name]

    def read(metadata: dict[str, Any]) -> None:
        checkpoint = converted.Header({**header, "metadata": metadata})
        check_shapes(read_config(checkpoint), checkpoint.tensors)  # type: ignore[arg-type]

    assert faults(variants(header["metadata"]), read) == []


@pytest.mark.parametrize("name", tiny.MODELS)
def test_config_json(name: str) -> None:
    def read(config: dict[str, Any]) -> None:
        checkpoint = HuggingFaceCheckpoint(config, {})
        check_shapes(read_config(checkpoint), checkpoint.tensors)

    assert faults(variants(json.loads(tiny.reference(name).config.to_json_string())), read) == []
