"""Middleware that reports unknown parameters: to the client in a Warning header, to the operator in a metric."""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.server.schemas.unknown import noting_unknown


class UnknownParameterWarning:
    """Wraps all routes. is_strict: unknown parameters are refused. count: adds to the metric."""

    def __init__(self, app: ASGIApp, is_strict: bool, count: Callable[[int], None]) -> None:
        self._app = app
        self._is_strict = is_strict
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with noting_unknown(self._is_strict) as unknown:

            async def send_with_warning(message: Message) -> None:
                if message["type"] == "http.response.start" and unknown.count:
                    self._count(unknown.count)
                    headers = [*message.get("headers", ()), (b"warning", unknown.warning.encode("ascii"))]
                    message = {**message, "headers": headers}
                await send(message)

            await self._app(scope, receive, send_with_warning)
