"""The examples of the contracts, carried out by the service."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.commands.recover import keep
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.supervisor.nats.home_setup import Prepared, make_person
from hearthnet.trust.community import commands, invites
from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.keys import Identity
from hearthnet_auth import AuthService, persons
from tests.helpers.contract_examples import missing_from_output, request_of
from tests.helpers.members import raise_to, take_in
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import DEVICE, INVITE, ISSUE, House, at_the_door, living, waiting_run
from tests.services.auth.test_recoveries import PAPER, SHARE, Town

OPEN_DOOR = "community.door.open@1.0"
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


async def device(mesh: Mesh, house: House, name: str) -> dict[str, str]:
    """A phone of the owner, whose person begins with the first one."""
    home, own, membership = mesh.home, house.identity, house.auth._membership
    await begun(mesh, house)
    held, key, phone = membership.roster, load_identity(home.person_key), Identity.generate()
    offered = statements.offered_device(
        held.community_id, held.owner(own.node_id), key, phone.node_id, "phone", name
    )
    signed = statements.consented(held.community_id, offered, phone)
    await house.auth._chain.append(
        lambda roster: (commands.CommunityAuthor(roster, own).add_device(signed, now_ms()),), lambda: None
    )
    return {"key": phone.node_id}


async def consented(mesh: Mesh, house: House) -> dict[str, str]:
    """A page that has signed that it is a device of the owner, called Firefox."""
    await begun(mesh, house)
    held, key = house.auth._membership.roster, load_identity(mesh.home.person_key)
    browser = Identity.generate()
    person = held.owner(house.node_id)
    offered = statements.offered_device(held.community_id, person, key, browser.node_id, "browser", "Firefox")
    signed = statements.consented(held.community_id, offered, browser)
    return {"person": person, "device": browser.node_id, "device_signature": signed.device_signature}


async def begun(mesh: Mesh, house: House) -> None:
    """The owner of the node is a person."""
    home, own, membership = mesh.home, house.identity, house.auth._membership
    if not home.person_key.exists():
        make_person(Prepared(home, own, membership.roster, None), lambda line: None)  # type: ignore[arg-type]
        await persons.introduce(house.auth._chain, home, own)


def recover(mesh: Mesh, house: House) -> None:
    """The recovery key has replaced the person key, in the home alone."""
    key, recovery = Identity.generate(), load_identity(mesh.home.recovery_key)
    author = commands.CommunityAuthor(house.auth._membership.roster, recovery)
    keep(mesh.home, key, author.recovered(key, ()))


async def share(mesh: Mesh, house: House) -> dict[str, Any]:
    """A share of a person who is helped and recovered in the home, and the statement that names the node."""
    one, home = Town(house, mesh), mesh.home
    if one.held.person(PAPER.node_id) is None:
        await one.person()
    for path, agreed in (
        (home.helping / f"{PAPER.token}.json", {"person": PAPER.node_id, "number": 0, "share": ""}),
        (home.recovering / "request.json", {"person": PAPER.node_id}),
    ):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(json.dumps(agreed))
    sealed = house.identity.seal_to(house.node_id, commands.CommunityAuthor.share_purpose, SHARE.encode())
    statement = msgspec.to_builtins(one.helpers())
    return {"statement": statement, "person": PAPER.node_id, "sealed": ids.b64(sealed)}


async def waiting(mesh: Mesh, house: House) -> str:
    """A run of the owner that waits for a decision."""
    async with await mesh.store() as store:
        runs = StoredRuns(store, house.identity)
        return (await waiting_run(runs, mesh.home, house.auth._membership.roster.community_id))[1]


@contextlib.asynccontextmanager
async def joined_device(mesh: Mesh, house: House) -> AsyncIterator[Bus]:
    """A process of a node that has joined by a text for a device."""
    await begun(mesh, house)
    text, membership = (await house.do(DEVICE))["invite"], house.auth._membership
    home, held = Home.resolve(mesh.home.path.parent / ids.new_ulid()), membership.roster
    newcomer = keyring.create_identity(home.device_key)
    asked = invites.ask(held, invites.decode_device(text).key(), newcomer, "laptop", now_ms())
    await membership.add(invites.admit(held, house.identity, asked, now_ms()))
    mesh.let_in(membership.roster)
    keyring.write_new(home.roster, rosters.encode(rosters.seal(membership.roster, newcomer)))

    async def connect() -> Bus | None:
        try:
            return await Bus.join(home, mesh.server.url, "device")
        except HearthNetError:
            return None

    async with await wait_for(connect, what="the server to know the device") as bus:
        yield bus


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


async def door(house: House, wanted: Mapping[str, Any]) -> dict[str, str]:
    """The open door of that node."""
    await house.do(OPEN_DOOR, **wanted)
    return {"node_id": house.node_id}


@contextlib.asynccontextmanager
async def prepared(mesh: Mesh, house: House, given: Mapping[str, Any]) -> AsyncIterator[tuple[Bus, Any]]:
    """Who asks, and what was made for it."""
    made: dict[str, Any] = {"members": await members(house, given.get("members", []))}
    made["invites"] = [await house.do(INVITE, **wanted) for wanted in given.get("invites", [])]
    made["doors"] = [await door(house, wanted) for wanted in given.get("doors", [])]
    made["devices"] = [await device(mesh, house, name) for name in given.get("devices", [])]
    made["runs"] = [{"run": await waiting(mesh, house)} for _ in range(given.get("runs", 0))]
    made["tokens"] = [
        await house.do(ISSUE, **{**wanted, "subject": made["members"][0]["node_id"]})
        for wanted in given.get("tokens", [])
    ]
    try:
        if given.get("consented"):
            made["consented"] = await consented(mesh, house)
        if given.get("share"):
            made["share"] = await share(mesh, house)
        if given.get("recovery"):
            recover(mesh, house)
        if given.get("joined_device"):
            async with joined_device(mesh, house) as bus:
                yield bus, made
            return
        if not given.get("newcomer"):
            yield house.bus, made
            return
        text = (await house.do(INVITE))["invite"]
        async with at_the_door(mesh, house, text) as newcomer:
            asked = invites.ask(
                await newcomer.roster(), invites.decode(text).key(), Identity.generate(), "newcomer", now_ms()
            )
            yield newcomer._bus, made | {"newcomer": {"event": msgspec.to_builtins(asked)}}
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
