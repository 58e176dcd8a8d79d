"""Plain HTTP: capabilities, calls and the API description (docs/gateway.md, "HTTP").

GET  /v1/capabilities     names, versions, schemas, offers
POST /v1/call             an answer in JSON, or server-sent events where the client accepts those
POST /v1/call/NAME        the same for one capability, with the body of the call; for clients without a key
GET  /openapi.json        the description of all of this for programs
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hearthnet.agent.loop.happened import HAPPENED, unsent, with_list
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.api import openapi
from hearthnet.gateway.api.capabilities import described, may_answer_whole, visible
from hearthnet.gateway.http.errors import as_hearthnet_error
from hearthnet.gateway.http.request_body import read_object
from hearthnet.gateway.http.sse import MEDIA_TYPE, encode, streamed, while_there
from hearthnet.gateway.runs.calls import (
    CallBody,
    Frames,
    MeshCall,
    answer,
    approved,
    collected,
    is_question,
    run_or_call,
    stream_frames,
    with_client_id,
)
from hearthnet.gateway.runs.follow_up import FollowUps
from hearthnet.gateway.runs.run import FollowUp, RunRequest
from hearthnet.trust.authorization.approval import Approval

if TYPE_CHECKING:
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway

_NAME: Final = "capability"
"""The path parameter for the capability, `name` or `name@major.minor`."""
_Kind = TypeVar("_Kind")


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes of this part."""
    calls = CallRoutes(gateway)
    return [
        Route("/v1/capabilities", calls.capabilities, methods=["GET"]),
        Route("/v1/call", calls.call, methods=["POST"]),
        Route(f"/v1/call/{{{_NAME}}}", calls.call, methods=["POST"]),
        Route("/openapi.json", calls.description, methods=["GET"]),
    ]


class CallRoutes:
    """The handlers of this part."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._follow_ups = FollowUps(gateway)

    async def capabilities(self, request: Request) -> Response:
        """Return the capabilities that the client may call; `?name=` selects one."""
        client = await self._gateway.clients.from_request(request)
        name = request.query_params.get("name", "")
        bus = self._gateway.bus
        views = visible(await bus.offers(), client.principal, client.scope, bus.peer.node_id)
        await bus.fetch_contracts([view for view in views if client.scope.covers(view.capability)])
        return JSONResponse({"capabilities": described(client.scope, views, name)})

    async def description(self, _request: Request) -> Response:
        """Return the API description.

        It needs no client, since it names no client and no node.
        """
        return JSONResponse(openapi.description())

    async def call(self, request: Request) -> Response:
        """Handle one call, or the next turn of a run."""
        received = await read_object(request)
        if (name := request.path_params.get(_NAME)) is not None:
            received = {"capability": name, "body": received}
        client = await self._client(request, received)
        if wants_events(request):
            return await self._events(request, client, received)
        with self._gateway.limits.held(client.account):
            return JSONResponse(await while_there(request.receive, self._answer(client, received)))

    async def _client(self, request: Request, received: dict[str, Any]) -> Client:
        """Return the client of a request.

        A call is signed by a client that has a key; a follow-up carries signed approvals instead.
        """
        clients = self._gateway.clients
        shown = "authorization" in request.headers or clients.cookie in request.cookies
        if token := clients.member_token(request):
            shown, received = False, {"token": token, **received}
        client = await clients.from_request(request) if shown else None
        if client is not None and client.key and _NAME in request.path_params:
            raise HearthNetError(
                "unauthorized", "this client signs its calls; send the signed call to /v1/call"
            )
        if client is None or "run" not in received:
            client = clients.from_envelope(received, client)
        return client

    async def _resolve(self, client: Client, received: dict[str, Any]) -> RunRequest | CallBody:
        """Return what is asked for: a new run, a follow-up (also as the body of a signed call), or a call."""
        inner = received.get("body")
        if "run" in received:
            return _read(received, FollowUp)
        if isinstance(inner, dict) and "run" in inner:
            return _read(inner, FollowUp, "/body")
        gateway = self._gateway
        asked = await run_or_call(gateway.bus, gateway.runs, client, _read(received, CallBody))
        if is_question(asked):
            gateway.clients.count_question(client)
        return asked

    async def _answer(self, client: Client, received: dict[str, Any]) -> dict[str, Any]:
        call = await self._resolve(client, received)
        if not isinstance(call, CallBody):
            return await self._follow_ups.answer(client, call)
        if call.contract.stream_schema is not None and not may_answer_whole(call.contract):
            before, last = await collected(self._stream(client, call))
            frames = [{"event": frame["event"], "data": frame["data"]} for frame in before]
            return {"output": {"frames": frames, "final": last["data"]}, "meta": last["data"]}
        return await self._unary(client, call)

    async def _unary(self, client: Client, call: CallBody) -> dict[str, Any]:
        """Return one answer, or the approval that the client's key has to sign first."""
        bus, contract, body = self._gateway.bus, call.contract, call.body
        approval: Approval | None = None
        if contract.stream_schema is not None:
            body = {**body, "input": {**_object(body, "input"), "stream": False}}
        if contract.side_effects:
            body = with_client_id(contract, body, call.request_id)
            try:
                found = await approved(bus, client, contract, body, call.approval)
            except HearthNetError as error:
                raise with_list(error, unsent(contract.id)) from error
            if not isinstance(found, Approval):
                return {"requires_follow_up": True, "run": "", "pending": [found], "wanted": []}
            approval = found
        token = self._gateway.clients.token(client)
        return await answer(bus, MeshCall(contract, body, token, call.timeout_seconds, approval))

    def _stream(self, client: Client, call: CallBody) -> Frames:
        contract = call.contract
        if contract.side_effects:
            raise HearthNetError(
                "not_implemented",
                f"{contract.id} has an effect and streams, which one request cannot carry; give it to "
                "a model as a tool",
            )
        token = self._gateway.clients.token(client)
        return stream_frames(self._gateway.bus, MeshCall(contract, call.body, token, call.timeout_seconds))

    async def _frames(self, client: Client, received: dict[str, Any]) -> Frames:
        call = await self._resolve(client, received)
        if not isinstance(call, CallBody):
            return self._follow_ups.frames(client, call)
        if call.contract.stream_schema is not None:
            return self._stream(client, call)
        return self._as_frames(client, call)

    async def _as_frames(self, client: Client, call: CallBody) -> Frames:
        """Yield the result of a capability that does not stream, and `done`, as frames."""
        reply = await self._unary(client, call)
        if reply.get("requires_follow_up"):
            yield {"event": "suspended", "data": reply, "seq": 1}
            return
        yield {"event": "result", "data": reply, "seq": 1}
        yield {"event": "done", "data": {**reply["meta"], HAPPENED: reply[HAPPENED]}, "seq": 2}

    async def _events(self, request: Request, client: Client, received: dict[str, Any]) -> Response:
        events = _Events()
        pieces = self._pieces(client, await self._frames(client, received), events)
        return await streamed(request.receive, pieces, events.failed)

    async def _pieces(self, client: Client, frames: Frames, events: _Events) -> AsyncGenerator[bytes, None]:
        """Yield the frames as events; raise the error that ends them."""
        with self._gateway.limits.held(client.account):
            async with aclosing(frames):
                async for frame in frames:
                    if piece := events.piece(frame):
                        yield piece


class _Events:
    """Frames as server-sent events.

    The first `iteration` is held back until the next frame, so that a model error right after it still has an
    HTTP status.
    """

    def __init__(self) -> None:
        self._seq = 0
        self._held = b""

    def piece(self, frame: dict[str, Any]) -> bytes:
        """Return the bytes to send for one frame, empty where it is held back."""
        self._seq = frame["seq"]
        self._held += encode(frame["event"], frame["data"], self._seq)
        return b"" if frame["event"] == "iteration" and self._seq == 1 else self._take_held()

    def failed(self, error: Exception) -> bytes:
        """Return the event that ends the answer with `error`, after any event held back."""
        return self._take_held() + encode("error", as_hearthnet_error(error).to_body(), self._seq + 1)

    def _take_held(self) -> bytes:
        held, self._held = self._held, b""
        return held


def wants_events(request: Request) -> bool:
    """Return whether the client accepts server-sent events."""
    return MEDIA_TYPE in request.headers.get("accept", "").lower()


def _read(received: dict[str, Any], kind: type[_Kind], where: str = "") -> _Kind:
    try:
        return msgspec.convert(received, kind)
    except msgspec.ValidationError as error:
        raise HearthNetError(
            "bad_request", f"the request is malformed: {error}", details={"path": where}
        ) from error


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    return value if isinstance(value, dict) else {}
