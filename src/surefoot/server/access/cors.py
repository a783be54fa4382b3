"""CORS: the headers that let web pages of other origins call this server and read its answers."""

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

ANY_ORIGIN = "*"
METHODS = ("GET", "POST", "DELETE")
READABLE_HEADERS = ("Retry-After", "Warning", "WWW-Authenticate", "X-Request-Id", "Request-Id")
PREFLIGHT_S = 600  # for which a browser may cache the answer to a preflight


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
