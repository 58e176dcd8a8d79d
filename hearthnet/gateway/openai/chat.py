"""The handlers of `/v1/chat/completions` and `/v1/models`, for any OpenAI client.

Each model that the client may call is listed once, however many nodes offer it; `mesh` is the one that fits
best. A name with `+tools` at its end means: with the tools of the mesh.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.errors import as_hearthnet_error, error_body
from hearthnet.gateway.http.request_body import read_object
from hearthnet.gateway.http.sse import encode_data, streamed, while_there
from hearthnet.gateway.openai.answer import Form, OpenAIAnswer
from hearthnet.gateway.openai.images import is_large, with_images_stored
from hearthnet.gateway.openai.request import ANY_MODEL, TOOLS_SUFFIX, OpenAIRequest, read_request
from hearthnet.gateway.openai.source import RunSource
from hearthnet.gateway.runs.calls import Frames
from hearthnet.gateway.runs.requested_tools import CHAT

if TYPE_CHECKING:
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway
    from hearthnet.trust.authorization.token import Scope

OWNER: Final = "hearthnet"


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes of this part."""
    chat = Chat(gateway)
    return [
        Route("/v1/models", chat.models, methods=["GET"]),
        Route("/v1/models/{model:path}", chat.models, methods=["GET"]),
        Route("/v1/chat/completions", chat.completions, methods=["POST"]),
    ]


def model_list(scope: Scope, views: Iterable[OfferView]) -> list[dict[str, Any]]:
    """Return the models in the offers `views` of `llm.chat` that `scope` covers, by name."""
    found: dict[str, dict[str, Any]] = {}
    for view in views:
        params = view.params
        if not scope.covers(view.capability):
            continue
        for name in dict.fromkeys((str(params.get("model", "")), *map(str, params.get("models", ())))):
            if name and scope.constraints.violated({"params": {"model": name}, "input": {}}) is None:
                _add(found, name, params)
    if found and not scope.params_constraints:
        for page in list(found.values()):
            _merge(found, ANY_MODEL, page["hearthnet"])
    with_tools = [
        _page(f"{name}{TOOLS_SUFFIX}", page["hearthnet"])
        for name, page in found.items()
        if page["hearthnet"]["tools"]
    ]
    return sorted([*found.values(), *with_tools], key=lambda page: str(page["id"]))


def find_model(pages: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the entry of one model.

    Raises:
        HearthNetError: `not_found` if no such model is offered, with the known names.
    """
    known = {str(page["id"]): page for page in pages}
    if name not in known:
        raise HearthNetError(
            "not_found", f"no model {name[:80]!r} is offered; there is: {', '.join(known) or 'none'}"
        )
    return known[name]


def _add(found: dict[str, dict[str, Any]], name: str, params: dict[str, Any]) -> None:
    about = {
        "ctx": int(params.get("ctx", 0)),
        "tools": bool(params.get("tools_supported")),
        "vision": "vision" in params.get("modalities", ()),
    }
    _merge(found, name, about)


def _merge(found: dict[str, dict[str, Any]], name: str, about: dict[str, Any]) -> None:
    """Combine a model's offers: it has the abilities that at least one of them has."""
    page = found.setdefault(name, _page(name, about))
    page["hearthnet"] = {what: max(page["hearthnet"][what], value) for what, value in about.items()}


def _page(name: str, about: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": OWNER, "hearthnet": dict(about)}


LARGE_AT_ONCE: Final = 4
_DONE: Final = b"data: [DONE]\n\n"


class Chat:
    """The handlers of OpenAI's API."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._source = RunSource(gateway)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def models(self, request: Request) -> Response:
        """Handle `GET /v1/models`, and one model by its name."""
        client = await self._client(request)
        pages = model_list(client.scope, await self._gateway.bus.offers(CHAT))
        name = request.path_params.get("model")
        if name is not None:
            return JSONResponse(find_model(pages, name))
        return JSONResponse({"object": "list", "data": pages})

    async def completions(self, request: Request) -> Response:
        """Handle `POST /v1/chat/completions`."""
        client = await self._client(request)
        completion = await self._read_request(request, client)
        form = Form(f"chatcmpl-{ids.new_ulid()}", int(time.time()), completion.model)
        if completion.stream:
            return await streamed(request.receive, self._pieces(client, completion, form), _failed)
        return JSONResponse(await while_there(request.receive, self._whole(client, completion, form)))

    async def _read_request(self, request: Request, client: Client) -> OpenAIRequest:
        """Return the request; limit large ones and store their images."""
        if not is_large(request):
            return read_request(await read_object(request))
        async with self._large:
            completion = read_request(await read_object(request))
            return await with_images_stored(completion, self._gateway.home, client.principal)

    async def _client(self, request: Request) -> Client:
        """Return the client; refuse one that signs its calls, which this API does not support."""
        client = await self._gateway.clients.from_request(request)
        if client.key:
            raise HearthNetError(
                "unauthorized", "this client signs its calls; take a key of `hearthnet clients add` here"
            )
        return client

    async def _whole(self, client: Client, completion: OpenAIRequest, form: Form) -> dict[str, object]:
        with self._gateway.limits.held(client.account):
            frames, of_run = await self._source.frames(client, completion)
            answer = OpenAIAnswer(of_run=of_run, texts=completion.texts)
            async with aclosing(frames):
                async for frame in frames:
                    answer.feed(frame["event"], frame["data"])
        return form.whole(answer)

    async def _pieces(
        self, client: Client, completion: OpenAIRequest, form: Form
    ) -> AsyncGenerator[bytes, None]:
        """Yield the chunks; raises the errors of the model or the run."""
        with self._gateway.limits.held(client.account):
            frames, of_run = await self._source.frames(client, completion)
            answer = OpenAIAnswer(of_run=of_run, texts=completion.texts)
            begun = False
            async with aclosing(frames):
                async for piece in _growing(frames, answer, completion, form):
                    if not begun:
                        begun = True
                        yield encode_data(form.chunk({"role": "assistant", "content": ""}))
                    yield piece
        if not begun:
            yield encode_data(form.chunk({"role": "assistant", "content": ""}))
        yield encode_data(form.last(answer))
        if completion.include_usage:
            yield encode_data(form.usage(answer))
        yield _DONE


def _failed(error: Exception) -> bytes:
    """Return the event by which OpenAI's API reports an error within a stream."""
    return encode_data(error_body(as_hearthnet_error(error)))


async def _growing(
    frames: Frames, answer: OpenAIAnswer, completion: OpenAIRequest, form: Form
) -> AsyncGenerator[bytes, None]:
    async for frame in frames:
        deltas = answer.feed(frame["event"], frame["data"])
        if completion.events:
            yield encode_data(form.event(frame))
        for delta in deltas:
            yield encode_data(form.chunk(delta))
