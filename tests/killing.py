"""Processes that are killed at work (`kill -9`)."""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests.waiting import PATIENCE_S

# Children of a process that has imported what they need already start in milliseconds.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["surefoot.api.llm"])


def kill_at_work(
    target: Callable[..., object], words: tuple[object, ...], num_messages: int, delay_s: float
) -> list[Any]:
    """What a process sent until it was killed: some time after so many messages.

    target: called with the words and the end of a pipe. It must not end by itself.
    """
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=target, args=(*words, sender))
    process.start()
    sender.close()
    try:
        messages = [_receive(receiver) for _ in range(num_messages)]
        time.sleep(delay_s)
    finally:
        process.kill()
        process.join(PATIENCE_S)
    return messages


def _receive(receiver: Connection) -> Any:
    """Raises EOFError if the process has ended."""
    assert receiver.poll(PATIENCE_S), "the process does not work"
    return receiver.recv()
