"""/admin/cache: what the prompt cache on disk holds of each user, and to forget a user, for admins."""

import asyncio
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from surefoot.cache import DiskTier
from surefoot.disk_cache import BlockHasher, Holdings, ask_to_forget, is_forgotten
from surefoot.server.access.gate import check_admin
from surefoot.server.access.keys import KeyStore
from surefoot.server.errors import ApiError
from surefoot.server.overview.figures import tokens_by_user
from surefoot.server.service import Service

ROUTE = "/admin/cache"
FORGET_S = 60.0


def cache_router(service: Service, keys: KeyStore | None) -> APIRouter:
    router = APIRouter()

    def allowed(http: HttpRequest) -> tuple[DiskTier, BlockHasher]:
        check_admin(http, keys is not None, "the cache has prompts of all users")
        tier = service.llm.disk_tier
        if tier is None or tier.hasher is None:
            raise ApiError(404, "this server keeps no prompts on disk: start it with --cache-dir", code="no_cache")
        return tier, tier.hasher

    @router.get(ROUTE)
    async def list_cache(http: HttpRequest) -> dict[str, Any]:
        """Bytes of each user. The disk has users' hashes: a user who has no key, and has not asked since the start, is
        shown by the hash."""
        tier, hasher = allowed(http)
        users = {*tokens_by_user(service.samples()), *(keys.weights if keys is not None else ())}
        holdings = await asyncio.to_thread(tier.store.holdings)
        return {
            "data": shown(holdings, hasher, users),
            "bytes": tier.store.total_bytes,
            "max_bytes": tier.store.max_bytes,
        }

    @router.delete(ROUTE)
    async def forget_user(http: HttpRequest, user: str) -> dict[str, Any]:
        """Remove all that a user's requests left on the disk. What is in memory stays until it is evicted."""
        tier, hasher = allowed(http)
        request = ask_to_forget(tier.store.folder, hasher.namespace(user))
        if not await asyncio.to_thread(is_forgotten, request, FORGET_S):
            raise ApiError(503, "the disk is busy: the user will be forgotten as soon as it is not")
        caller = http.state.caller
        service.audit.write(route=ROUTE, user=caller.user, key=caller.key, end="cache forgotten", about=user)
        return {"user": user, "deleted": True}

    return router


def shown(holdings: Iterable[Holdings], hasher: BlockHasher, users: Iterable[str]) -> list[dict[str, Any]]:
    """The largest first. user: None where only the hash is known."""
    names = {hasher.namespace(user): user for user in users}
    rows = [
        {
            "user": names.get(held.namespace),
            "hash": held.owner,
            "blocks": held.num_blocks,
            "bytes": held.num_bytes,
        }
        for held in holdings
        if held.model == hasher.model
    ]
    return sorted(rows, key=lambda row: -row["bytes"])
