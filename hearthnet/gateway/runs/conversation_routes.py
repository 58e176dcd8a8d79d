"""The conversations of a person's pages, kept at the gateway (docs/gateway.md, "The page").

GET    /v1/conversations         {"conversations": [...]}: the id and revision of each, the deleted ones too
GET    /v1/conversations/{id}    one of them with its content
POST   /v1/conversations/{id}    {"base", "title", "at", "content"}: a revision that follows `base`
DELETE /v1/conversations/{id}

They are those of the principal of a page with a key of its own. For a program's key, a token and a page
without a key there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hearthnet.agent.devices.conversation import Conversation
from hearthnet.agent.devices.conversation_store import ConversationStore
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import is_ulid

if TYPE_CHECKING:
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway

_MAX_TIME: Final = 1 << 53
_Answer = Callable[[ConversationStore, Request], Awaitable[Any]]


class ConversationChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new revision of a conversation; `base` is the one that it follows, empty for a new conversation."""

    base: Annotated[str, msgspec.Meta(max_length=64)]
    title: Annotated[str, msgspec.Meta(max_length=200)]
    at: Annotated[int, msgspec.Meta(ge=0, le=_MAX_TIME)]
    content: dict[str, Any]


_CHANGE: Final = msgspec.json.Decoder(ConversationChange)


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes under `/v1/conversations`."""
    stores: dict[str, ConversationStore] = {}

    def store_of(client: Client) -> ConversationStore:
        if not client.is_page:
            raise HearthNetError("not_found", "conversations are kept for pages that have a key of their own")
        if client.principal not in stores:
            stores[client.principal] = ConversationStore(
                gateway.home, gateway.bus.peer.identity, client.principal
            )
        return stores[client.principal]

    def of_page(work: _Answer) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            client = await gateway.clients.from_request(request)
            return JSONResponse(await work(store_of(client), request))

        return handler

    one = "/v1/conversations/{conversation}"
    return [
        Route("/v1/conversations", of_page(_listing), methods=["GET"]),
        Route(one, of_page(_page), methods=["GET"]),
        Route(one, of_page(_change), methods=["POST"]),
        Route(one, of_page(_delete), methods=["DELETE"]),
    ]


async def _listing(store: ConversationStore, _request: Request) -> Any:
    return {"conversations": [_line(one) for one in await asyncio.to_thread(store.all)]}


def _line(one: Conversation) -> dict[str, Any]:
    if one.deleted:
        return {"id": one.id, "deleted": True}
    return {"id": one.id, "revision": one.revision, "title": one.title, "at": one.at}


async def _page(store: ConversationStore, request: Request) -> Any:
    found = await asyncio.to_thread(store.find, request.path_params["conversation"])
    if found is None or found.deleted:
        raise HearthNetError("not_found", "there is no such conversation")
    return {**_line(found), "content": found.content}


async def _change(store: ConversationStore, request: Request) -> Any:
    wanted, conversation = read_json(await request.body(), _CHANGE), request.path_params["conversation"]
    if not is_ulid(conversation):
        raise HearthNetError("bad_request", "the id of a conversation is a ULID")
    made = await asyncio.to_thread(
        store.change, conversation, wanted.base, wanted.title, wanted.content, wanted.at
    )
    return {"revision": made.revision}


async def _delete(store: ConversationStore, request: Request) -> Any:
    await asyncio.to_thread(store.delete, request.path_params["conversation"])
    return {"deleted": request.path_params["conversation"]}
