"""The page at `/`: chat for people, figures for operators; and `/docs`, the HTTP API by Swagger UI. Their files hold no
secret, so no key is needed to load them; the API's schema needs one."""

from collections.abc import Mapping
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files
from mimetypes import guess_type

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from surefoot.server.access.gate import DOCS, DOCS_FILES, PAGE, PAGE_FILES
from surefoot.server.errors import ApiError

INDEX, DOCS_INDEX = "index.html", "docs.html"
SWAGGER_FILES = ("swagger-ui-bundle.js", "swagger-ui.css")
RUNNING = "surefoot is running"
# Nothing from elsewhere, no script or style inside HTML, no frames around the page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
DOCS_POLICY = POLICY.replace("img-src 'self'", "img-src 'self' data:")  # Swagger UI's style sheet has pictures in it
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def page_files() -> dict[str, bytes]:
    """The pages' own files by name."""
    return _read(files("surefoot.server").joinpath("page"))


@cache
def swagger_files() -> dict[str, bytes]:
    """Swagger UI's, as a package brings them along."""
    folder = files("fastapi_offline").joinpath("static")
    return {name: data for name, data in _read(folder).items() if name in SWAGGER_FILES}


def _read(folder: Traversable) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def page_router() -> APIRouter:
    router = APIRouter()

    @router.api_route(PAGE, methods=["GET", "HEAD"], include_in_schema=False)
    async def root(http: HttpRequest) -> Response:
        """Browsers get the page. Ollama's clients check here that the server runs, and get a line of text."""
        if "text/html" not in http.headers.get("accept", ""):
            return PlainTextResponse(RUNNING)
        return _send(INDEX)

    @router.get(PAGE_FILES + "{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        return _send(name)

    @router.get(DOCS, include_in_schema=False)
    async def docs() -> Response:
        return _send(DOCS_INDEX, policy=DOCS_POLICY)

    @router.get(DOCS_FILES + "{name}", include_in_schema=False)
    def docs_file(name: str) -> Response:  # not async: the first request reads megabytes
        return _send(name, swagger_files())

    return router


def _send(name: str, known: Mapping[str, bytes] | None = None, policy: str = POLICY) -> Response:
    known = page_files() if known is None else known
    if name not in known:
        raise ApiError(404, "the page has no such file")
    kind = "text/javascript" if name.endswith(".js") else guess_type(name)[0]
    return Response(known[name], media_type=kind, headers={**HEADERS, "Content-Security-Policy": policy})
