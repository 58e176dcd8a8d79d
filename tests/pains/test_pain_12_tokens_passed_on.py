"""A token is never passed on: it stands in the call it was made for, and nowhere else.

See: docs/protocol/failures.md#confused-deputy.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.types import Approve, Decision, PendingApproval
from hearthnet.trust.authorization.token import SCHEME
from tests.agent.bench import POST, QUERY
from tests.agent.runtime.test_executor import tools
from tests.agent.scripted import ScriptedBus, calls, done, gives, says

BODY = {"params": {}, "input": {"messages": [{"role": "user", "content": "Look, and post."}]}}


@pytest.mark.asyncio
@pytest.mark.req("TOOL-21")
async def test_no_token_is_seen_by_model_listener_person_or_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bus = ScriptedBus(
        [calls("search_corpus", QUERY, "a"), calls("market_post", POST, "b"), done("tool_calls")],
        [says("Done."), done()],
        tools={"rag.query@1.0": gives({"chunks": []}), "market.post@1.0": gives({"event_id": "e"})},
    )
    seen: list[Any] = []

    async def listen(frame: dict[str, Any]) -> None:
        seen.append(frame)

    async def decide(pending: PendingApproval) -> Decision:
        seen.append(repr(pending))
        return Approve()

    outcome = (
        await ToolExecutor(bus, tools("search_corpus", "market_post"))
        .open_run(BODY, stream_to=listen, decide=decide)
        .drive()
    )
    assert len(bus.calls) == 2
    told = json.dumps([seen, bus.requests, outcome.messages, [call.body for call in bus.calls]])
    assert SCHEME not in told
    assert SCHEME not in caplog.text
