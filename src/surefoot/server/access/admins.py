"""Routes that only operators may read."""

from starlette.requests import Request as HttpRequest

from surefoot.server.errors import ApiError


def check_admin(http: HttpRequest, has_keys: bool, why: str) -> None:
    """Raises ApiError unless the caller's key is an admin's. Without keys, everybody who reaches the server may."""
    if has_keys and not http.state.caller.is_admin:
        raise ApiError(403, f"{why}: use an admin key (surefoot keys add --admin)")
