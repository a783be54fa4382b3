"""Priorities of threads, which Linux has apart."""

import os
import threading

YIELDING = 10  # a tenth of the processor beside a thread that computes; all of it on an idle machine


def yield_processor() -> None:
    """From now on, this thread runs after those that answer requests, if there are too few cores for all."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), YIELDING)
