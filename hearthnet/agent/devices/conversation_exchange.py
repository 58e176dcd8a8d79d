"""The conversations of the owner's pages, exchanged between the nodes of the person.

A node sends its revisions to the other nodes that are there, when they change, and then those conversations
that the other one lacks. Each merges them with its own, by the same rule.

See: docs/protocol/persons.md#conversations.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from typing import Any, Final

from hearthnet.agent.devices import conversation as conversations
from hearthnet.agent.devices.conversation import Conversation
from hearthnet.agent.devices.conversation_store import ConversationStore
from hearthnet.agent.devices.pushes import Pushes
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import short_id
from hearthnet.service.hosting.context import NodeContext
from hearthnet.trust.community.roster import OWNER_GUEST

CALL: Final = "community.device.conversations@1.0"
_CALL_SECONDS: Final = 10.0
_log = logging.getLogger(__name__)


class ConversationExchange:
    """The part of a node that brings the conversations of its owner to the other nodes."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        own = node.identity
        self._store = ConversationStore.of_guest(node.home, own, OWNER_GUEST)
        self._stamp = -1
        self._heads: dict[str, str] = {}
        self._pushes = Pushes()

    async def take_in(self, heads: list[dict[str, str]], text: str) -> dict[str, Any]:
        """Merge the conversation in `text`; return the ids of those in `heads` that are lacking here.

        Raises:
            HearthNetError: `bad_request` if it is no conversation; as `ConversationStore.take_in`.
        """
        if text:
            await asyncio.to_thread(self._store.take_in, conversations.from_text(text))
        return {"wanted": await asyncio.to_thread(self._lacking, heads)}

    def _lacking(self, heads: list[dict[str, str]]) -> list[str]:
        return [head["id"] for head in heads if _lacks(self._store.find(head["id"]), head["revision"])]

    async def round(self, others: Set[str]) -> None:
        """Send changes to those of `others` that are there."""
        await asyncio.to_thread(self._look)
        due = self._pushes.due(others, self._heads, asyncio.get_running_loop().time())
        if not due:
            return
        there = {view.node for view in await self._node.bus.offers(CALL)}
        for node in sorted(due & there):
            try:
                await self._send(node, self._heads)
            except HearthNetError as error:
                _log.info("conversations are not sent to %s now: %s", short_id(node), error.message)

    def _look(self) -> None:
        """Read the revisions, if the folder has changed."""
        try:
            stamp = self._store.folder.stat().st_mtime_ns
        except FileNotFoundError:
            stamp = 0
        if stamp != self._stamp:
            self._heads = {one.id: one.revision for one in self._store.all()}
            self._stamp = stamp

    async def _send(self, node: str, heads: dict[str, str]) -> None:
        lines = [{"id": name, "revision": revision} for name, revision in heads.items()]
        wanted = await self._call(node, {"heads": lines})
        for name in wanted:
            found = await asyncio.to_thread(self._store.find, name)
            if found is not None:
                await self._call(node, {"heads": [], "conversation": conversations.to_text(found)})
        self._pushes.arrived((node,), heads)

    async def _call(self, node: str, fields: dict[str, Any]) -> list[str]:
        request = {"params": {}, "input": fields}
        reply = await self._node.bus.call(CALL, request, node=node, timeout_seconds=_CALL_SECONDS)
        return list(reply.output["wanted"])


def _lacks(own: Conversation | None, revision: str) -> bool:
    """Return whether a revision brings something new to `own`; nothing does to a deleted one."""
    if own is None:
        return True
    return not own.deleted and revision != own.revision and revision not in own.history
