"""What the front says of a request reaches the model's process; what a client says in the same words does not."""

import json
from dataclasses import fields

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from surefoot.front.proxy import ProxiedRequest
from surefoot.front.requests import OWN_HEADERS
from surefoot.server.access.front_gate import CALLER_HEADER, PATIENT_HEADER, FrontGate, caller_header
from surefoot.server.access.request_context import RequestContext
from surefoot.server.access.shares import ANYONE, Caller


async def tell(request: Request) -> JSONResponse:
    context = RequestContext.of(request)
    return JSONResponse([context.caller.user, context.is_patient, context.created])


@pytest.fixture
def client() -> TestClient:
    return TestClient(FrontGate(Starlette(routes=[Route("/", tell)]), lambda key, amount: None))


def test_lines_of_batches_are_patient(client: TestClient) -> None:
    headers = {CALLER_HEADER: caller_header(ANYONE)}
    assert client.get("/", headers=headers).json() == [ANYONE.user, False, None]
    assert client.get("/", headers={**headers, PATIENT_HEADER: "17"}).json() == [
        ANYONE.user,
        True,
        17,
    ]


FRONT_ONLY = ("is_admin", "upstreams", "upstream_budget")


def test_every_field_of_a_caller_crosses() -> None:
    """A field that does not would hold for a server of one model only. An admin's figures and the upstreams are the
    front's own."""
    caller = Caller("ann", "k", 2.0, 3, 64, uses_disk=False)
    told = FrontGate(Starlette(), lambda key, amount: None)._caller(caller_header(caller))
    assert told == caller
    assert set(json.loads(caller_header(caller))) >= {
        field.name for field in fields(Caller) if field.compare and field.name not in FRONT_ONLY
    }


@pytest.mark.parametrize("name", [CALLER_HEADER, PATIENT_HEADER])
def test_clients_cannot_say_it(name: str) -> None:
    scope = {"method": "GET", "path": "/", "query_string": b"", "headers": [(name.encode(), b"1"), (b"accept", b"x")]}
    sent = ProxiedRequest.of(scope, b"").with_headers([], dropping=OWN_HEADERS)
    assert [key for key, _ in sent.headers if key == name.encode()] == []
    assert (b"accept", b"x") in sent.headers
