"""What went wrong, in a line that says what to do, instead of a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from surefoot.ops import OpError, VariantError

# ValueError: what readers, tokenizers, templates and the engine raise for files and requests that cannot be.
TOLD = (ValueError, OSError, MemoryError, VariantError, OpError)


@contextmanager
def told() -> Iterator[None]:
    try:
        yield
    except TOLD as error:
        typer.echo(f"surefoot: {error}", err=True)
        raise typer.Exit(1) from None
