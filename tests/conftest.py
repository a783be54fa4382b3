"""What tests of several layers run over."""

import signal
from collections import Counter
from functools import partial
from itertools import product

import httpx
import httpx2
import pytest
from hypothesis import settings

from surefoot.ops import VariantError
from surefoot.ops.backend import NEEDS, choose_variant
from tests.waiting import PATIENCE_S

# A shared machine may stand still for half a second: that must not fail a test, so examples have no deadline. By day
# the examples are always the same, so that no change is blamed for an older fault. By night they are new.
settings.register_profile("day", deadline=None, derandomize=True)
settings.register_profile("night", deadline=None)
# For the same reason a request without a timeout of its own gets PATIENCE_S, not the libraries' five seconds.
VERBS = ("delete", "get", "head", "options", "patch", "post", "put", "request", "stream")
for library, name in product((httpx, httpx2), VERBS):
    setattr(library, name, partial(getattr(library, name), timeout=PATIENCE_S))

# A shell lets its background jobs ignore Ctrl-C, and they hand that down to the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly too")
    parser.addoption("--one-variant", action="store_true", help="only the machine's best of all instruction sets")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("night" if config.getoption("--nightly") else "day")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first, then those with most tests, so that no worker is left alone with a long one."""
    if not config.getoption("--nightly"):
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(pytest.mark.skip(reason="nightly: run with --nightly, as .ci/nightly does"))
    size = Counter(item.path for item in items)
    long = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("long")}
    items.sort(key=lambda item: (item.path not in long, -size[item.path], item.path))


@pytest.fixture(params=list(NEEDS))
def variant(request: pytest.FixtureRequest) -> str:
    """Each in turn; one that the machine lacks is skipped, saying so."""
    if request.config.getoption("--one-variant") and request.param != choose_variant():
        pytest.skip("--one-variant: only the best")
    try:
        return choose_variant(request.param)
    except VariantError as lacking:
        pytest.skip(str(lacking))
