"""Patterns of private texts. The engine is pydantic's own, which never goes back: its time is linear in the text."""

from collections.abc import Sequence

from pydantic_core import SchemaError, SchemaValidator, core_schema


class PrivatePatterns:
    """Raises ValueError for a pattern that is invalid, or that only an engine that goes back could match."""

    def __init__(self, patterns: Sequence[str]) -> None:
        try:
            self._patterns = [SchemaValidator(core_schema.str_schema(pattern=pattern)) for pattern in patterns]
        except SchemaError as error:
            raise ValueError(str(error).splitlines()[-1].strip().removeprefix("error: ")) from None

    def match(self, text: str) -> bool:
        """Whether one of them is in the text. Raises ValueError for a text that cannot be checked."""
        text.encode()  # lone surrogates match no pattern, whatever stands beside them
        return any(pattern.isinstance_python(text) for pattern in self._patterns)
