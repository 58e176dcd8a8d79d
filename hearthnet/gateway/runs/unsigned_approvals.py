"""Unsigned approvals, shown with each pending call to a client that has a key."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import msgspec

from hearthnet.agent.runtime.client_authority import ClientApprover
from hearthnet.agent.runtime.ports import Listener
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import PendingApproval
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.approval import Approval

_MOST_PROPOSED: Final = 1024


class ApprovalCache:
    """The approvals that were proposed, so that a client sees the same one again."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Approval] = OrderedDict()

    def same(self, wanted: Approval) -> Approval:
        """Return the approval that was proposed earlier in place of `wanted`, else `wanted`.

        The two differ only in id and time.
        """
        alike = msgspec.structs.replace(wanted, id="", time=0).signing_bytes()
        proposed = self._kept.pop(alike, wanted)
        self._kept[alike] = proposed
        if len(self._kept) > _MOST_PROPOSED:
            self._kept.popitem(last=False)
        return proposed


class ApprovalPresenter:
    """The pending calls of one run, as its client is shown them."""

    def __init__(self, voter: ClientApprover, toolbox: Toolbox, proposed: ApprovalCache) -> None:
        self._voter = voter
        self._toolbox = toolbox
        self._proposed = proposed

    async def shown(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return `asked`, the data of `confirmation_required`, with an unsigned `approval`.

        It is None where the call takes no approval, and where none can be made now: then `approval_problem`
        has the reason. Clients without a key get `asked` unchanged.
        """
        if not self._voter.key:
            return asked
        try:
            wanted = await self._voter.approval_template(
                self._toolbox[asked["name"]], msgspec.convert(asked, PendingApproval)
            )
        except HearthNetError as error:
            return {**asked, "approval": None, "approval_problem": error.message}
        if wanted is None:
            return {**asked, "approval": None}
        unsigned = self._proposed.same(wanted).as_json()
        del unsigned["signature"]
        return {**asked, "approval": unsigned}

    async def all_shown(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the result of `shown` for each."""
        return [await self.shown(one) for one in asked]

    def hearing(self, hear: Listener, hidden: list[str]) -> Listener:
        """Return a listener that adds approvals, and first a notice of `hidden` tools, to `hear`."""
        more = 1 if hidden else 0

        async def heard(frame: dict[str, Any]) -> None:
            event, data = frame["event"], frame["data"]
            if hidden and frame["seq"] == 1:
                await hear({"event": "notice", "data": _notice(hidden), "seq": 1})
            if event == "confirmation_required":
                data = await self.shown(data)
            elif event == "suspended":
                data = {**data, "pending": await self.all_shown(data["pending"])}
            await hear({"event": event, "data": data, "seq": frame["seq"] + more})

        return heard


def _notice(hidden: list[str]) -> dict[str, Any]:
    return {"code": "tools_hidden", "text": f"what you may do here does not cover: {', '.join(hidden)}"}
