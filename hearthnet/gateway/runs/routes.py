"""Runs over HTTP: list, show, decide, cancel (docs/gateway.md, "Runs").

GET  /v1/runs                       {"runs": [...]}, newest first GET  /v1/runs/{run}                 one
run with its calls and its conversation POST /v1/runs/{run}/decisions       {"call", "decision", "shown",
...}: the decision that counts, with `repeated` POST /v1/runs/{run}/preview         {"call", "arguments"}:
the call as it would be sent after an edit POST /v1/runs/{run}/cancel
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hearthnet.core.canonical_json import read_json
from hearthnet.gateway.runs.decision_body import DecisionBody

if TYPE_CHECKING:
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway

_VIA: Final = "http"


class Said(DecisionBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision about the call with this tool call id or confirmation id."""

    call: str


class Changed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call with other arguments, to be shown as it would be sent."""

    call: str
    arguments: dict[str, Any]


_SAID: Final = msgspec.json.Decoder(Said)
_CHANGED: Final = msgspec.json.Decoder(Changed)


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes under `/v1/runs`."""
    runs = _Runs(gateway)
    return [
        Route("/v1/runs", runs.listing, methods=["GET"]),
        Route("/v1/runs/{run}", runs.page, methods=["GET"]),
        Route("/v1/runs/{run}/decisions", runs.decide, methods=["POST"]),
        Route("/v1/runs/{run}/preview", runs.preview, methods=["POST"]),
        Route("/v1/runs/{run}/cancel", runs.cancel, methods=["POST"]),
    ]


@contextlib.asynccontextmanager
async def lifespan(gateway: Gateway) -> AsyncIterator[None]:
    """Close the store of the runs when the gateway ends."""
    try:
        yield
    finally:
        await gateway.runs.close()


class _Runs:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def listing(self, request: Request) -> Response:
        """Return the client's runs of the last day."""
        client = await self._client(request)
        return JSONResponse({"runs": await self._gateway.runs.listing(client)})

    async def page(self, request: Request) -> Response:
        """Return one run with its conversation."""
        client = await self._client(request)
        return JSONResponse(await self._gateway.runs.page(client, request.path_params["run"]))

    async def decide(self, request: Request) -> Response:
        """Store a decision."""
        client = await self._client(request)
        said = read_json(await request.body(), _SAID)
        taken = await self._gateway.runs.decide(
            client,
            request.path_params["run"],
            said.call,
            said.decided(),
            shown=said.shown,
            approval=said.approval,
            via=_VIA,
        )
        return JSONResponse(taken)

    async def preview(self, request: Request) -> Response:
        """Return the call as an edit would send it."""
        client = await self._client(request)
        changed = read_json(await request.body(), _CHANGED)
        asked = await self._gateway.runs.preview(
            client, request.path_params["run"], changed.call, changed.arguments
        )
        return JSONResponse(asked)

    async def cancel(self, request: Request) -> Response:
        """End a run; calls that wait are never sent."""
        client = await self._client(request)
        return JSONResponse(await self._gateway.runs.cancel(client, request.path_params["run"]))

    async def _client(self, request: Request) -> Client:
        client = await self._gateway.clients.from_request(request)
        return client
