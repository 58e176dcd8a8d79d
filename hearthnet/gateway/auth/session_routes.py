"""Health, the client's own data, and sessions for pages opened by a one-time link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hearthnet import __version__
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.client_store import check_client
from hearthnet.gateway.http.rate_limits import address_of, is_loopback

if TYPE_CHECKING:
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway

_LONGEST: Final = 200
_Text = Annotated[str, msgspec.Meta(max_length=_LONGEST)]


class _Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that opens a session: the code of the link, the page's public key, its name."""

    code: _Text
    key: _Text = ""
    name: _Text = "browser"


_OPENING: Final = msgspec.json.Decoder(_Opening)


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes `/health`, `/v1/me` and `/v1/session`."""
    door = _Door(gateway)
    return [
        Route("/health", door.health, methods=["GET"]),
        Route("/v1/me", door.me, methods=["GET"]),
        Route("/v1/session", door.open, methods=["POST"]),
        Route("/v1/session", door.close, methods=["DELETE"]),
    ]


class _Door:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def health(self, _request: Request) -> Response:
        """Return whether the gateway is connected to the bus, without data of node or community."""
        well = self._gateway.bus.peer.link.is_connected
        return JSONResponse({"ok": well, "version": __version__}, 200 if well else 503)

    async def me(self, request: Request) -> Response:
        """Return the data of the client."""
        return JSONResponse(self._page(await self._gateway.clients.from_request(request)))

    async def open(self, request: Request) -> Response:
        """Add a client for the code of a one-time link; accepted from this computer only."""
        gateway = self._gateway
        if not _is_here(request):
            raise HearthNetError(
                "unauthorized",
                "a link opens on the node's own computer only; elsewhere use a key of: hearthnet clients add",
            )
        opening = read_json(await request.body(), _OPENING)
        check_client(opening.name, opening.key)
        try:
            link = gateway.links.use(opening.code)
        except HearthNetError:
            gateway.limits.wrong(address_of(request))
            raise
        entry, secret = gateway.clients.book.add(
            opening.name, link.principal, key=opening.key, made_by="link"
        )
        answer = JSONResponse(self._page(gateway.clients.of(entry)), 201)
        answer.set_cookie(
            gateway.clients.cookie,
            f"{entry.id}_{secret}",
            max_age=(entry.expires_at - now_ms()) // 1000,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def close(self, request: Request) -> Response:
        """End the session of a page by removing its client; refuse keys and tokens."""
        gateway = self._gateway
        client = await gateway.clients.from_request(request)
        if client.bearer:
            raise HearthNetError(
                "bad_request", "a token ends by its own time, or where its issuer revokes it"
            )
        if "authorization" in request.headers:
            raise HearthNetError(
                "bad_request",
                "a key is no session, and nothing was removed; the owner of this node takes it back with: "
                f"hearthnet clients remove {client.id}",
            )
        gateway.clients.book.remove(client.id)
        answer = JSONResponse({"removed": client.id})
        answer.delete_cookie(gateway.clients.cookie, httponly=True, samesite="strict")
        return answer

    def _page(self, client: Client) -> dict[str, Any]:
        peer = self._gateway.bus.peer
        return {
            "node": peer.node_id,
            "community": peer.community,
            "id": client.id,
            "name": client.name,
            "principal": client.principal,
            "key": client.key,
            "scope": msgspec.to_builtins(client.scope),
            "expires_at": client.expires_at,
            "time": now_ms(),
        }


def _is_here(request: Request) -> bool:
    """Return whether the request was made on this computer, and not forwarded by it."""
    if "forwarded" in request.headers or "x-forwarded-for" in request.headers:
        return False
    address, server = address_of(request), request.scope.get("server") or ("",)
    return is_loopback(address) or (bool(address) and address == server[0])
