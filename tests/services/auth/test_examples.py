"""The examples of the contracts, carried out by the service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.trust.community import commands, invites
from hearthnet.trust.keys import Identity
from hearthnet_auth import AuthService
from tests.helpers.contract_examples import missing_from_output, request_of
from tests.helpers.members import raise_to, take_in
from tests.helpers.mesh import Mesh
from tests.services.auth.houses import INVITE, ISSUE, House, at_the_door, living

pytestmark = pytest.mark.asyncio


async def members(house: House, levels: list[Any]) -> list[dict[str, str]]:
    """Members of these levels, let in and raised by the founder."""
    membership, made = house.auth._membership, []
    for level in levels:
        newcomer = Identity.generate()
        held = take_in(membership.roster, house.identity, newcomer)
        if level != "member":
            held = raise_to(held, house.identity, newcomer, level)
        await membership.add(held.events)
        made.append({"node_id": newcomer.node_id})
    return made


async def put_out(mesh: Mesh, house: House, made: list[dict[str, str]]) -> None:
    """Takes the members of one example away again, by the root."""
    root = load_identity(mesh.home.community_key)
    for one in made:
        if house.auth._membership.roster.member(one["node_id"]) is not None:
            await house.auth._chain.append(
                lambda held, node=one["node_id"]: (  # type: ignore[misc]
                    commands.CommunityAuthor(held, root).revoke(
                        node, "other", client_id=ids.new_ulid(), now_ms=now_ms()
                    ),
                ),
                lambda: None,
            )


@contextlib.asynccontextmanager
async def prepared(mesh: Mesh, house: House, given: Mapping[str, Any]) -> AsyncIterator[tuple[Bus, Any]]:
    """Who asks, and what was made for it."""
    made: dict[str, Any] = {"members": await members(house, given.get("members", []))}
    made["invites"] = [await house.do(INVITE, **wanted) for wanted in given.get("invites", [])]
    made["tokens"] = [
        await house.do(ISSUE, **{**wanted, "subject": made["members"][0]["node_id"]})
        for wanted in given.get("tokens", [])
    ]
    try:
        if not given.get("newcomer"):
            yield house.bus, made
            return
        text = (await house.do(INVITE))["invite"]
        async with at_the_door(mesh, house, text) as door:
            asked = invites.ask(
                await door.roster(), invites.decode(text).key(), Identity.generate(), "newcomer", now_ms()
            )
            yield door._bus, made | {"newcomer": {"event": msgspec.to_builtins(asked)}}
    finally:
        await put_out(mesh, house, made["members"])


async def outcome(bus: Bus, name: str, request: dict[str, Any], example: Mapping[str, Any]) -> list[str]:
    """What the output lacks of what the example expects; where it is refused, its code and path."""
    try:
        reply = await bus.call(name, request)
    except HearthNetError as error:
        return [error.code, str(error.details["path"])] if "path" in example else [error.code]
    return missing_from_output(example.get("expect", {}), reply.output)


@pytest.mark.req("AUTH-1", "COMMUNITY-8", "CONTRACT-2")
async def test_the_examples_of_the_contracts(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder:
        for capability in [offer.capability for offer in AuthService().offers()]:
            for example in contracts().get(capability).examples:
                async with prepared(mesh, founder, example.get("given", {})) as (bus, made):
                    expected = [example[key] for key in ("error", "path") if key in example]
                    request = request_of(example, made)
                    assert await outcome(bus, capability, request, example) == expected, example
