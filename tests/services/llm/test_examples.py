"""The examples of the llm contracts, carried out by the model in the box."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet_llm import LlmService
from tests.helpers.contract_examples import missing_from_output, request_of
from tests.helpers.mesh import Mesh
from tests.services.llm.model_server import ModelServer


async def _outcome(bus: Bus, name: str, request: dict[str, Any], example: Mapping[str, Any]) -> list[str]:
    """What the answer lacks of what the example expects; where it is refused, its code and path."""
    try:
        if contracts().get(name).stream_schema is None:
            return missing_from_output(
                example.get("expect", {}), (await bus.call(name, request)).body["output"]
            )
        async with bus.stream(name, request) as stream:
            frames = [frame async for frame in stream]
    except HearthNetError as error:
        return [error.code, str(error.details["path"])] if "path" in example else [error.code]
    return missing_from_output(example.get("expect", {}), frames[-1].data, [frame.event for frame in frames])


@pytest.mark.req("LLM-12", "LLM-40")
@pytest.mark.asyncio
async def test_the_examples_of_the_contracts(mesh: Mesh) -> None:
    async with ModelServer(one={}) as server, mesh.hosting(LlmService()), await mesh.bus() as bus:
        for contract in contracts():
            for example in contract.examples if contract.id.startswith("llm.") else ():
                expected = [example[key] for key in ("error", "path") if key in example]
                request = request_of(example, {"server": server.url})
                assert await _outcome(bus, contract.id, request, example) == expected
