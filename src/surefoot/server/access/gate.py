"""Checks that every request passes before its route: host name, origin, key, size and speed of the body; and whether
the server drains."""

import asyncio
import ipaddress
import json
import time
from collections.abc import Callable, Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.server.access.keys import KeyStore
from surefoot.server.access.shares import ANYONE, Caller, SharedBudget
from surefoot.server.errors import ApiError, too_large, too_many
from surefoot.server.settings import ServerSettings

ANY_ORIGIN = "*"
METHODS = ("GET", "POST", "DELETE")
READABLE_HEADERS = ("Retry-After", "Warning", "WWW-Authenticate", "X-Request-Id", "Request-Id")
PREFLIGHT_S = 600  # for which a browser may cache the answer to a preflight
PROBES = frozenset({"/health", "/ready"})  # always answered, even when every place is taken
PAGE = "/"
PAGE_FILES = "/page/"
DOCS = "/docs"
DOCS_FILES = "/docs/"
UPLOADS = "/v1/files"
MOST_KEY_CHARACTERS = 512
WATCHED = PROBES | {"/metrics"}


def with_cors(app: ASGIApp, origins: Collection[str]) -> ASGIApp:
    """The application behind starlette's CORS middleware. A preflight needs no key; refusals are readable too.

    Pages of the server's own origin need none of this. Cookies are never used, so credentials are not allowed.
    """
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=["*"],
        allow_private_network=True,
        expose_headers=READABLE_HEADERS,
        max_age=PREFLIGHT_S,
    )


def needs_no_key(path: str) -> bool:
    """Probes, and the files of the pages, which hold no secret."""
    return path in PROBES or path in (PAGE, DOCS) or path.startswith((PAGE_FILES, DOCS_FILES))


class Gate:
    """The checks in front of the application. keys: None lets every client in, which serve() allows on loopback
    alone."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        keys: KeyStore | None,
        on_refusal: Callable[[Scope, ApiError], None],
    ) -> None:
        self._app = app
        self._settings = settings
        self._hosts = settings.hosts
        self._origins = settings.origins
        self._keys = keys
        self._on_refusal = on_refusal
        self._requests = SharedBudget(settings.max_requests)
        self._bodies = SharedBudget(settings.max_held_bytes)
        self._uploads = SharedBudget(settings.max_uploads * settings.max_file_bytes)  # uploads go to the disk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets
            return
        try:
            caller = self._check(scope)
        except ApiError as error:
            self._on_refusal(scope, error)
            await send_error(scope, send, error)
            return
        body = self._body(scope, receive, caller)
        try:
            await self._app(scope, body, send)
        finally:
            body.release()
            self._requests.give_back(caller.user, _places(scope))

    def _check(self, scope: Scope) -> Caller:
        """The caller, to whom the request is now charged. Raises ApiError if the request is refused."""
        headers = Headers(scope=scope)
        self._check_host(headers)
        self._check_origin(headers)
        state = scope.setdefault("state", {})
        caller, forwarded = self._find_caller(scope["path"], headers), state.get("forwarded")
        state["caller"] = caller = caller if forwarded is None else forwarded.caller(caller)
        self._check_length(headers, self._most_bytes(scope))
        if not self._requests.take(caller.user, _places(scope)):
            raise too_many("you have reached your share of requests on this server", 5.0, "queue_full")
        return caller

    def _body(self, scope: Scope, receive: Receive, caller: Caller) -> "BoundedBody":
        budget = self._uploads if _is_upload(scope) else self._bodies
        return BoundedBody(receive, caller.user, budget, self._most_bytes(scope), self._settings)

    def _check_host(self, headers: Headers) -> None:
        """Refuse unknown host names (DNS rebinding): a web page's own name may be made to point at this machine. An
        address cannot be pointed elsewhere, so addresses pass."""
        host = headers.get("host", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name.lower() not in self._hosts and not _is_address(name):
            raise ApiError(403, "the Host header is not a name of this server: start it with --allowed-host NAME")

    def _check_origin(self, headers: Headers) -> None:
        """Refuse browsers' requests from pages of other origins: they must not spend this machine's time."""
        origin = headers.get("origin")
        if origin is None or not self._origins.isdisjoint((origin, ANY_ORIGIN)):
            return
        if _netloc(origin) != headers.get("host"):
            raise ApiError(
                403, "web pages of this origin may not call this server: start it with --allowed-origin ORIGIN"
            )

    def _find_caller(self, path: str, headers: Headers) -> Caller:
        if self._keys is None or needs_no_key(path):
            return ANYONE
        key = client_key(headers)
        caller = self._keys.find(key) if 0 < len(key) <= MOST_KEY_CHARACTERS else None
        if caller is None:
            raise ApiError(
                401,
                "no valid key: send one as `Authorization: Bearer KEY` (surefoot keys add makes one)",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return caller

    def _most_bytes(self, scope: Scope) -> int:
        return self._settings.max_file_bytes if _is_upload(scope) else self._settings.max_body_bytes

    def _check_length(self, headers: Headers, most: int) -> None:
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > most:
            raise too_large(most)


def client_key(headers: Mapping[str, str]) -> str:
    """The key that a client sent; empty: none."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _netloc(origin: str) -> str:
    """Host and port of an origin; empty if it is not a URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # a bracket that is not closed
        return ""


def _places(scope: Scope) -> int:
    """How many of the places for requests this request takes: none for probes, which are always answered."""
    return 0 if scope["path"] in PROBES else 1


def _is_upload(scope: Scope) -> bool:
    return bool(scope["path"] == UPLOADS and scope["method"] == "POST")


class BoundedBody:
    """A request's body, refused if it is too large, too slow, or its user already holds too many bytes."""

    def __init__(
        self, receive: Receive, user: str, budget: SharedBudget, most: int, settings: ServerSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._receive = receive
        self._user = user
        self._budget = budget
        self._most = most
        self._num_bytes = 0
        self._rate = settings.least_body_rate
        self._pause_s = settings.read_s
        self._clock = clock
        self._due = clock() + settings.body_grace_s
        self._end = clock() + settings.deadline_s * max(1.0, most / settings.max_body_bytes)
        self._whole = False

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()  # the next message says that the client has disconnected
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, min(self._due, self._end) - self._clock()))
        except TimeoutError:
            advice = f"the body must arrive at {self._rate} bytes per second or faster: send it faster, or send less"
            raise ApiError(408, advice) from None
        self._hold(len(message.get("body", b"")))
        self._whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    def _hold(self, length: int) -> None:
        if self._num_bytes + length > self._most:
            raise too_large(self._most)
        if not self._budget.take(self._user, length):
            raise too_many("the bodies of your requests have reached your share of memory", 5.0, "queue_full")
        self._num_bytes += length
        self._due = min(self._due + length / self._rate, self._clock() + self._pause_s)

    def release(self) -> None:
        self._budget.give_back(self._user, self._num_bytes)


async def send_error(scope: Scope, send: Send, error: ApiError) -> None:
    body = json.dumps(error.body_for(scope["path"])).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def shutting_down() -> ApiError:
    """A client's next connection may reach the next process, so this one is closed."""
    return ApiError(
        503, "the server is shutting down: try another", headers={"Retry-After": "10", "Connection": "close"}
    )


def unless_draining(app: ASGIApp, is_draining: Callable[[], bool], on_refusal: Callable[[int], None]) -> ASGIApp:
    """The application, reduced to /health, /ready and /metrics while the server drains."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_draining() and scope["path"] not in WATCHED:
            on_refusal(503)
            await send_error(scope, send, shutting_down())
        else:
            await app(scope, receive, send)

    return serve


def check_admin(http: HttpRequest, has_keys: bool, why: str) -> None:
    """Raises ApiError unless the caller's key is an admin's. Without keys, everybody who reaches the server may."""
    if has_keys and not http.state.caller.is_admin:
        raise ApiError(403, f"{why}: use an admin key (surefoot keys add --admin)")
