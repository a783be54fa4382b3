"""What tests of several layers run over."""

import signal

import pytest
from hypothesis import settings

from surefoot.ops import VariantError
from surefoot.ops.backend import NEEDS, choose_variant

# A processor shared with others stands still for half a second at times: no failure of what is tested.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

# A shell lets its background jobs ignore Ctrl-C, and they hand that down to the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=list(NEEDS))
def variant(request: pytest.FixtureRequest) -> str:
    """Each in turn; one that the machine lacks is skipped, saying so."""
    try:
        return choose_variant(request.param)
    except VariantError as lacking:
        pytest.skip(str(lacking))
