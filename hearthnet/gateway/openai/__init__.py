"""OpenAI's API over the mesh: `/v1/models` and `/v1/chat/completions` (docs/gateway.md, "OpenAI")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from hearthnet.gateway.app import Gateway


def routes(gateway: Gateway) -> list[BaseRoute]:
    """As app.py wants them."""
    from hearthnet.gateway.openai.chat import Chat, in_openais_form

    chat = Chat(gateway)
    models, completions = in_openais_form(chat.models), in_openais_form(chat.completions)
    return [
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{model:path}", models, methods=["GET"]),
        Route("/v1/chat/completions", completions, methods=["POST"]),
    ]
