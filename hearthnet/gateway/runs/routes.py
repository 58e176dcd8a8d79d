"""Runs over HTTP: list, show, decide, cancel (docs/gateway.md, "Runs").

GET  /v1/runs                       {"runs": [...]}, newest first
GET  /v1/runs/{run}                 one run with its calls and its conversation
POST /v1/runs/{run}/decisions       {"call", "decision", "shown", ...}: the decision that counts
POST /v1/runs/{run}/preview         {"call", "arguments"}: the call as it would be sent after an edit
POST /v1/runs/{run}/cancel
POST /v1/runs/{run}/take            takes it over from another computer of the owner
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hearthnet.core.canonical_json import read_json
from hearthnet.gateway.runs.follow_up import VIA
from hearthnet.gateway.runs.run import DecisionBody

if TYPE_CHECKING:
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway


class CallDecision(DecisionBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision about the call with this tool call id or confirmation id."""

    call: str


class EditPreview(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call with other arguments, to be shown as it would be sent."""

    call: str
    arguments: dict[str, Any]


_DECISION: Final = msgspec.json.Decoder(CallDecision)
_CHANGED: Final = msgspec.json.Decoder(EditPreview)


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes under `/v1/runs`."""

    async def listing(client: Client, _request: Request) -> Any:
        return {"runs": await gateway.runs.listing(client)}

    async def page(client: Client, request: Request) -> Any:
        return await gateway.runs.page(client, request.path_params["run"])

    async def decide(client: Client, request: Request) -> Any:
        said, run = read_json(await request.body(), _DECISION), request.path_params["run"]
        return await gateway.runs.decide(client, run, said.call, said, VIA)

    async def preview(client: Client, request: Request) -> Any:
        changed, run = read_json(await request.body(), _CHANGED), request.path_params["run"]
        return await gateway.runs.preview(client, run, changed.call, changed.arguments)

    async def cancel(client: Client, request: Request) -> Any:
        return await gateway.runs.cancel(client, request.path_params["run"])

    async def take(client: Client, request: Request) -> Any:
        return await gateway.runs.take(client, request.path_params["run"])

    def of_client(
        work: Callable[[Client, Request], Awaitable[Any]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            return JSONResponse(await work(await gateway.clients.from_request(request), request))

        return handler

    return [
        Route("/v1/runs", of_client(listing), methods=["GET"]),
        Route("/v1/runs/{run}", of_client(page), methods=["GET"]),
        Route("/v1/runs/{run}/decisions", of_client(decide), methods=["POST"]),
        Route("/v1/runs/{run}/preview", of_client(preview), methods=["POST"]),
        Route("/v1/runs/{run}/cancel", of_client(cancel), methods=["POST"]),
        Route("/v1/runs/{run}/take", of_client(take), methods=["POST"]),
    ]
