"""/v1/batches: create, list, read and cancel batches."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request as HttpRequest

from surefoot.server.batch.batches import Batches
from surefoot.server.batch.records import page
from surefoot.server.batch.state import needed, storage_errors
from surefoot.server.bodies import JsonRoute
from surefoot.server.schemas.batches import After, BatchReply, BatchRequest, Page

ROUTE = "/v1/batches"


def batches_router(batches: Batches | None) -> APIRouter:
    """batches: None if the server has no state folder."""
    router = APIRouter(route_class=JsonRoute)

    @router.post(ROUTE)
    async def create_batch(body: BatchRequest, http: HttpRequest) -> BatchReply:
        with storage_errors():
            return await needed(batches).create(http.state.caller.user, body)

    @router.get(ROUTE)
    async def list_batches(
        http: HttpRequest, after: After = None, limit: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> Page[BatchReply]:
        shown, place = page(needed(batches).of(http.state.caller.user), after, limit)
        return Page(data=[*shown], **place)

    @router.get(ROUTE + "/{batch_id}")
    async def retrieve_batch(batch_id: str, http: HttpRequest) -> BatchReply:
        return needed(batches).get(http.state.caller.user, batch_id)

    @router.post(ROUTE + "/{batch_id}/cancel")
    async def cancel_batch(batch_id: str, http: HttpRequest) -> BatchReply:
        with storage_errors():
            return await needed(batches).cancel(http.state.caller.user, batch_id)

    return router
