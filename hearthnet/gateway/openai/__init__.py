"""OpenAI's API over the mesh: `/v1/models` and `/v1/chat/completions`.

See: docs/gateway.md, "OpenAI".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from hearthnet.gateway.context import Gateway


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes of this part."""
    from hearthnet.gateway.openai.chat import Chat

    chat = Chat(gateway)
    return [
        Route("/v1/models", chat.models, methods=["GET"]),
        Route("/v1/models/{model:path}", chat.models, methods=["GET"]),
        Route("/v1/chat/completions", chat.completions, methods=["POST"]),
    ]
