"""The priority of one thread."""

import os
import threading

from surefoot.machine.priority import YIELDING, yield_processor


def test_only_the_calling_thread_yields() -> None:
    found: list[int] = []

    def run() -> None:
        yield_processor()
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [YIELDING]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
