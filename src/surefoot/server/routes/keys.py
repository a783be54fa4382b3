"""/admin/keys: who may use the server, for admins; what `surefoot keys` does on the server's own machine."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from surefoot.server.access.gate import check_admin
from surefoot.server.access.key_file import (
    KeyEntry,
    KeyFileError,
    KeyOwner,
    add_key,
    hash_of,
    make_key,
    read_keys,
    revoke_keys,
)
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.line_log import LineLog
from surefoot.server.errors import ApiError, bad_request

ROUTE = "/admin/keys"
T = TypeVar("T")


def keys_router(keys: KeyStore | None, audit: LineLog) -> APIRouter:
    """keys: None if the server has none."""
    router = APIRouter()

    def allowed(http: HttpRequest) -> KeyStore:
        if keys is None:
            raise ApiError(404, "this server has no keys: start it with --keys FILE", code="no_keys")
        check_admin(http, True, "keys are for admins")
        return keys

    @router.get(ROUTE)
    async def list_keys(http: HttpRequest) -> dict[str, list[dict[str, Any]]]:
        """Users, the short names of their keys, and their limits."""
        store = allowed(http)
        return {"data": [entry.shown for entry in await in_thread(lambda: read_keys(store.path))]}

    @router.post(ROUTE)
    async def create_key(http: HttpRequest, owner: KeyOwner) -> dict[str, Any]:
        """Add a key. The reply alone has it: the file keeps its hash."""
        store, key = allowed(http), make_key()
        entry = KeyEntry(hash=hash_of(key), **owner.model_dump())
        await change(store, lambda: add_key(store.path, entry))
        note(http, entry, "key added")
        return {"key": key, **entry.shown}

    @router.delete(ROUTE + "/{name}")
    async def revoke_key(name: str, http: HttpRequest) -> dict[str, Any]:
        """Requests that are running continue."""
        store = allowed(http)
        if name.startswith(http.state.caller.key):
            raise bad_request("this is the key that you use: revoke it with another admin's", "name")
        [entry] = await change(store, lambda: revoke_keys(store.path, name))
        note(http, entry, "key revoked")
        return {"name": entry.name, "deleted": True}

    def note(http: HttpRequest, entry: KeyEntry, end: str) -> None:
        caller = http.state.caller
        audit.write(route=ROUTE, user=caller.user, key=caller.key, end=end, about=f"{entry.name} of {entry.user}")

    return router


async def in_thread(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except KeyFileError as error:
        raise bad_request(str(error)) from None


async def change(store: KeyStore, work: Callable[[], T]) -> T:
    """The changed file is read at once."""
    done = await in_thread(work)
    store.reload()
    return done
