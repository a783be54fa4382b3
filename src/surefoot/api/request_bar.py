"""A progress bar on stderr for a list of requests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def request_bar(num_requests: int) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that takes the number of finished requests and the number of tokens so far."""
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[tokens]} tokens"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("requests", total=num_requests, tokens=0)
        yield lambda num_done, num_tokens: bar.update(task, completed=num_done, tokens=num_tokens)
