"""Requests that come from the front process, which has checked them: headers name the caller, lines of batches, and
whether the model must be sure of its answer.

The headers are trusted because only the front process can connect: the server listens on a socket in a folder that no
other user may enter. The front drops headers of these names from what clients send.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from surefoot.server.access.shares import ANYONE, Caller
from surefoot.server.access.sure_check import SureCheck

CALLER_HEADER = "x-surefoot-caller"
PATIENT_HEADER = "x-surefoot-patient"  # of a line of a batch, for which no client waits: the batch's Unix time
Charge = Callable[[str, float], None]  # of a key's name and a number of tokens


def caller_header(caller: Caller) -> str:
    fields = {"user": caller.user, "key": caller.key, "weight": caller.weight, "priority": caller.priority}
    fields |= {"max_context": caller.max_context, "uses_disk": caller.uses_disk}
    return json.dumps({**fields, "counts_tokens": caller.tokens is not None})


class FrontGate:
    """Stands where the gate stands in a server of one process. charge: tells the front of tokens, to whose rates they
    count."""

    def __init__(self, app: ASGIApp, charge: Charge) -> None:
        self._app = app
        self._charge = charge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            state = scope.setdefault("state", {})
            state["caller"] = self._caller(headers.get(CALLER_HEADER))
            state["line_created"] = int(headers[PATIENT_HEADER]) if PATIENT_HEADER in headers else None
            state["sure"] = check = SureCheck.asked(headers)
            send = send if check is None else check.telling(send)
        await self._app(scope, receive, send)

    def _caller(self, header: str | None) -> Caller:
        if header is None:
            return ANYONE
        fields = json.loads(header)
        tokens = ReportedTokens(self._charge, fields["key"]) if fields.pop("counts_tokens") else None
        return Caller(**fields, tokens=tokens)


@dataclass(frozen=True)
class ReportedTokens:
    """A key's rate of tokens, held by the front process: it has let the request in, and is told what it used."""

    charge: Charge
    key: str

    def wait_s(self, amount: float) -> float:
        return 0.0

    def take(self, amount: float) -> None:
        self.charge(self.key, amount)
