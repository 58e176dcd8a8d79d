"""Asking the person behind an MCP client: by a form while the call waits, or by the reply that comes with it.

See: docs/protocol/gateway.md.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.mcp import elicitation

ASK_SECONDS: Final = elicitation.LIFE_MS / 1000
_LONGEST_WORDS: Final = 200
Context = ServerRequestContext[Any, Any]


async def ask(context: Context, question: types.ElicitRequestFormParams) -> tuple[str, Any]:
    """Return the person's answer; `cancel` where none comes in time.

    Raises:
        HearthNetError: `unauthorized` if the client does not show the question.
    """
    try:
        async with asyncio.timeout(ASK_SECONDS):
            reply = await context.session.elicit_form(
                question.message, question.requested_schema, context.request_id
            )
    except TimeoutError:
        return "cancel", None
    except MCPError as error:
        raise HearthNetError(
            "unauthorized",
            f"the MCP client did not ask the person ({_short(error.message)}); nothing was sent",
        ) from error
    return reply.action, reply.content


def _short(words: str) -> str:
    """Return a client's message as part of one line: bounded, without invisible characters."""
    kept = "".join(letter if letter.isprintable() else " " for letter in words[: 2 * _LONGEST_WORDS])
    return " ".join(kept.split())[:_LONGEST_WORDS] or "no reason"


def elicited(reply: Any) -> tuple[str, Any]:
    """Return the reply that came with a call; `cancel` where it is malformed."""
    return (reply.action, reply.content) if isinstance(reply, types.ElicitResult) else ("cancel", None)


def check_approved(said: tuple[str, Any]) -> None:
    """Check that an answer to an elicitation approves; a denial with other content is a denial.

    Raises:
        HearthNetError: `unauthorized` if it does not approve.
    """
    if not elicitation.is_approved(*said):
        words = "said no" if said[0] == "decline" else "gave no yes"
        raise HearthNetError("unauthorized", f"the person {words}; nothing was sent")


def can_ask(context: Context) -> bool:
    """Return whether the client shows forms to a person.

    Elicitation without a mode is by forms.
    """
    capabilities = context.session.client_capabilities
    modes = capabilities.elicitation if capabilities is not None else None
    return modes is not None and (modes.form is not None or modes.url is None)
