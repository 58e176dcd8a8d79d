"""The examples of the llm contracts, carried out by the model in the box."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hearthnet.bus import Bus
from hearthnet.contracts import contracts
from hearthnet.contracts.examples import request_of, unmet
from hearthnet.errors import HearthNetError
from hearthnet_llm import LlmService
from tests.helpers.mesh import Mesh


async def _outcome(bus: Bus, name: str, request: dict[str, Any], example: Mapping[str, Any]) -> list[str]:
    """What the model's frames lack of what the example expects; where it is refused, its code and path."""
    try:
        async with bus.stream(name, request) as stream:
            frames = [frame async for frame in stream]
    except HearthNetError as error:
        return [error.code, str(error.details["path"])] if "path" in example else [error.code]
    return unmet(example.get("expect", {}), frames[-1].data, [frame.event for frame in frames])


@pytest.mark.req("LLM-12")
@pytest.mark.asyncio
async def test_the_examples_of_the_contracts(mesh: Mesh) -> None:
    async with mesh.hosting(LlmService()), await mesh.bus() as bus:
        for name in ("llm.chat@2.0", "llm.complete@1.0"):
            for example in contracts().get(name).examples:
                expected = [example[key] for key in ("error", "path") if key in example]
                assert await _outcome(bus, name, request_of(example, None), example) == expected
