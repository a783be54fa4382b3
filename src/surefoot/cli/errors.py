"""Expected errors end a command with one line that says what to do, in place of a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from surefoot.ops import OpError, VariantError

# ValueError: raised by readers, tokenizers, templates and the engine for invalid files and requests.
EXPECTED = (ValueError, OSError, MemoryError, VariantError, OpError)


@contextmanager
def exit_on_error() -> Iterator[None]:
    try:
        yield
    except EXPECTED as error:
        typer.echo(f"surefoot: {error}", err=True)
        raise typer.Exit(1) from None
