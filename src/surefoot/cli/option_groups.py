"""Options that several commands take, written once: a dataclass in a command's signature stands for its fields."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer sees it: the fields of each dataclass parameter are parameters of their own."""
    signature = inspect.signature(command)
    annotations: dict[str, Any] = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    groups = {name: group for name, group in annotations.items() if _is_group(group)}
    fields = {name: inspect.signature(group).parameters for name, group in groups.items()}
    flat = signature.replace(
        parameters=[
            field.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in signature.parameters.items()
            for field in (fields[name].values() if name in groups else [parameter])
        ]
    )

    @wraps(command)
    def run(**values: Any) -> None:
        bound = flat.bind(**values)
        bound.apply_defaults()
        arguments = bound.arguments
        filled = {
            name: group(**{field: arguments.pop(field) for field in fields[name]}) for name, group in groups.items()
        }
        command(**arguments, **filled)

    run.__signature__ = flat  # type: ignore[attr-defined]
    return run


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and is_dataclass(annotation)
