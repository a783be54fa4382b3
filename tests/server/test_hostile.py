"""Many clients at once, most of them hostile: nothing breaks, nothing leaks, honest answers do not change."""

import httpx
import pytest

from tests.server.doors import DOORS
from tests.server.hostile_clients import CHAT
from tests.server.process import Server
from tests.server.soak import soak
from tests.smollm2 import find_file


@pytest.mark.parametrize("kind", DOORS)
def test_honest_answers_do_not_change(kind: str) -> None:
    """The short form of python -m tests.server.soak, with time for a busy machine."""
    report = soak(find_file(), num_clients=24, seconds=5, memory_mib=3072, grace_s=600, kind=kind)
    assert report.is_sound, report
    assert len(report.hostile.ends) >= 6


def test_the_schema_of_the_api_is_there(server: Server) -> None:
    paths = httpx.get(f"{server.root}/openapi.json").json()["paths"]
    assert {CHAT, "/v1/completions", "/v1/messages", "/v1/responses", "/v1/models", "/tokenize"} <= set(paths)
