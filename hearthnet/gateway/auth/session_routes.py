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
from hearthnet.gateway.auth.person_devices import PageKind
from hearthnet.gateway.http.rate_limits import address_of, is_loopback
from hearthnet.trust.community.person_statements import REMOVED_DEVICE
from hearthnet.trust.signed_document import Signed, check

if TYPE_CHECKING:
    from hearthnet.gateway.auth.client_store import StoredClient
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway

_LONGEST: Final = 200
_Text = Annotated[str, msgspec.Meta(max_length=_LONGEST)]


class _Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that opens a session: the code of the link, the page's public key, its name.

    `signature` is by the key.
    """

    code: _Text
    key: _Text = ""
    name: _Text = "browser"
    signature: _Text = ""


class PageKey(Signed, frozen=True, kw_only=True):
    """What a page signs with the key that it names: that it opens this link of this node, under this name."""

    code: str
    key: str
    name: str
    node: str


class _Consent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that makes a page a device: its signature on the offer, completed with `kind`."""

    signature: _Text
    kind: PageKind = "browser"


class _Objection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that objects to a recovery: its id, and the page's signature on the statement that it does."""

    recovery: _Text
    signature: _Text


PURPOSE: Final = "page key"
"""The purpose for which a page signs that the key with which it opens a link is its own."""
_CONSENT: Final = msgspec.json.Decoder(_Consent)
_OBJECTION: Final = msgspec.json.Decoder(_Objection)
_OPENING: Final = msgspec.json.Decoder(_Opening)


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes `/health`, `/v1/me`, `/v1/session`, `/v1/device` and `/v1/objection`."""
    session = _SessionRoutes(gateway)
    return [
        Route("/health", session.health, methods=["GET"]),
        Route("/v1/me", session.me, methods=["GET"]),
        Route("/v1/session", session.open, methods=["POST"]),
        Route("/v1/session", session.close, methods=["DELETE"]),
        Route("/v1/device", session.add_device, methods=["POST"]),
        Route("/v1/objection", session.object, methods=["POST"]),
    ]


class _SessionRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def health(self, _request: Request) -> Response:
        """Return whether the gateway is connected to the bus, without data of node or community."""
        well = self._gateway.bus.peer.link.is_connected
        return JSONResponse({"ok": well, "version": __version__}, 200 if well else 503)

    async def me(self, request: Request) -> Response:
        """Return the data of the client."""
        client = await self._gateway.clients.from_request(request, at_any_hour=True)
        return JSONResponse(self._page(client))

    async def open(self, request: Request) -> Response:
        """Add a client for the code of a one-time link.

        Links for a phone are accepted from everywhere over TLS, others from this computer only.
        """
        gateway, is_here = self._gateway, _is_here(request)
        if not (is_here or _is_direct_tls(request)):
            raise HearthNetError(
                "unauthorized",
                "a link opens on the node's own computer only; elsewhere use a key of: hearthnet clients add",
            )
        opening = read_json(await request.body(), _OPENING)
        check_client(opening.name, opening.key)
        try:
            _check_key(opening, gateway.bus.peer.node_id)
            if gateway.bus.peer.roster.is_removed_device(opening.key):
                raise HearthNetError("revoked", REMOVED_DEVICE)
            link = gateway.links.use(
                opening.code,
                is_here=is_here,
                check=lambda found: gateway.clients.page_keys.check(found.principal, opening.key),
            )
        except HearthNetError:
            gateway.limits.wrong(address_of(request))
            raise
        entry, secret = gateway.clients.book.add(
            opening.name, link.principal, key=opening.key, made_by="link", check=self._check_person
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

    async def add_device(self, request: Request) -> Response:
        """Make the page a device of its person, by the consent that it has signed."""
        gateway = self._gateway
        client = await gateway.clients.from_request(request, at_any_hour=True)
        consent = read_json(await request.body(), _CONSENT)
        await gateway.devices.add(client, consent.kind, consent.signature)
        return JSONResponse(self._page(client), 201)

    async def object(self, request: Request) -> Response:
        """Object, as the device that the page is, to a recovery of its person."""
        gateway = self._gateway
        client = await gateway.clients.from_request(request, at_any_hour=True)
        said = read_json(await request.body(), _OBJECTION)
        await gateway.devices.object(client, said.recovery, said.signature)
        return JSONResponse(self._page(client), 201)

    async def close(self, request: Request) -> Response:
        """End the session of a page by removing its client and device; refuse keys and tokens."""
        gateway = self._gateway
        client = await gateway.clients.from_request(request, at_any_hour=True)
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
        answer = JSONResponse({"removed": client.id, **await self._forgotten(client)})
        answer.delete_cookie(gateway.clients.cookie, httponly=True, samesite="strict")
        return answer

    async def _forgotten(self, client: Client) -> dict[str, str]:
        """Take a page that signs out from the devices; the session is over, whether that worked or not."""
        try:
            await self._gateway.devices.remove(client)
        except HearthNetError as error:
            return {"device_problem": error.message}
        return {}

    def _check_person(self, entry: StoredClient) -> None:
        """Check that a page of a person other than the owner has a key, by which all of its calls are signed.

        Raises:
            HearthNetError: `bad_request` if not; `unauthorized` if the person was removed.
        """
        somebody = self._gateway.clients.book.persons.find(entry.principal)
        if somebody is not None and somebody.removed_at:
            raise HearthNetError("unauthorized", f"{somebody.name} is no person of this home any more")
        if somebody is not None and not entry.key:
            raise HearthNetError("bad_request", "a person's page has a key, and this browser sent none")

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
            **self._gateway.devices.about(client),
        }


def _check_key(opening: _Opening, node: str) -> None:
    """Check that the page has the key that it names, if any.

    Raises:
        HearthNetError: `invalid_signature` if not, or for another link or node.
    """
    if opening.key:
        about = {name: getattr(opening, name) for name in ("code", "key", "name", "signature")}
        check(PageKey(node=node, **about), opening.key, PURPOSE)


def _is_direct_tls(request: Request) -> bool:
    """Return whether the request came over TLS that the gateway itself ends, so that no proxy reads it."""
    is_forwarded = "forwarded" in request.headers or "x-forwarded-for" in request.headers
    return request.url.scheme == "https" and not is_forwarded


def _is_here(request: Request) -> bool:
    """Return whether the request was made on this computer, and not forwarded by it."""
    if "forwarded" in request.headers or "x-forwarded-for" in request.headers:
        return False
    address, server = address_of(request), request.scope.get("server") or ("",)
    return is_loopback(address) or (bool(address) and address == server[0])
