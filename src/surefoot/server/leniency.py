"""Unknown parameters of HTTP requests: a Warning header tells the client, a metric the operator."""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.server.schemas.unknown import noting


class UnknownParameters:
    """Around all routes, so that none needs code of its own. is_strict: unknown parameters are refused."""

    def __init__(self, app: ASGIApp, is_strict: bool, count: Callable[[int], None]) -> None:
        self._app = app
        self._is_strict = is_strict
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with noting(self._is_strict) as unknown:

            async def send_with_warning(message: Message) -> None:
                if message["type"] == "http.response.start" and unknown.count:
                    self._count(unknown.count)
                    headers = [*message.get("headers", ()), (b"warning", unknown.warning.encode("ascii"))]
                    message = {**message, "headers": headers}
                await send(message)

            await self._app(scope, receive, send_with_warning)
