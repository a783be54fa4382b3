"""The log of every command that serves."""

import logging

from surefoot.server.access.log_limit import LogLimit

CHATTY = ("httpx2", "uvicorn")  # a line for each request


def start_logging() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(name)s: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit())
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
