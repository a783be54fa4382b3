"""What tests of several layers run over."""

import pytest

from surefoot.ops import VariantError
from surefoot.ops.backend import NEEDS, choose_variant


@pytest.fixture(params=list(NEEDS))
def variant(request: pytest.FixtureRequest) -> str:
    """Each in turn; one that the machine lacks is skipped, saying so."""
    try:
        return choose_variant(request.param)
    except VariantError as lacking:
        pytest.skip(str(lacking))
