"""Clients that ask one long answer after the other, until a test is over."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import httpx

from tests.server.process import Server
from tests.waiting import PATIENCE_S

ANSWER_TOKENS = 400


@contextmanager
def busy(server: Server, keys: Sequence[str]) -> Iterator[None]:
    """A client for each key. The same key may stand there several times."""
    is_over = Event()

    def ask(number: int, key: str) -> None:
        body = {"model": "small", "prompt": f"Tale {number}. Once", "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
        headers = {"Authorization": f"Bearer {key}"}
        while not is_over.is_set():
            reply = httpx.post(f"{server.url}/completions", json=body, headers=headers, timeout=PATIENCE_S)
            assert reply.status_code == 200, reply.text

    with ThreadPoolExecutor(len(keys)) as threads:
        clients = [threads.submit(ask, number, key) for number, key in enumerate(keys)]
        try:
            yield
        finally:
            is_over.set()
            for client in clients:  # one that failed is told even if what the test waited for never happened
                client.result()
