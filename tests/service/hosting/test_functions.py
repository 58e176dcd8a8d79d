"""Functions on a real server: called by other processes of their node, and by nobody else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import hearthnet
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.api.capabilities import covered
from hearthnet.trust.authorization.token import Scope
from tests.helpers.mesh import Mesh

GREET = "hello.greet"


class Person(msgspec.Struct):
    """A person."""

    name: str
    age: int = 3


def hello(**terms: Any) -> hearthnet.Service:
    """A service outside the namespaces of this project."""
    service = hearthnet.Service("hello")

    @service.capability("hello.greet@1.0", **terms)
    async def greet(person: Person, polite: bool = False) -> str:
        """Greet a person."""
        if not person.name:
            raise HearthNetError("not_found", "there is nobody")
        return f"{'Good day' if polite else 'Hello'} {person.name}, {person.age}"

    return service


def body(**given: Any) -> dict[str, Any]:
    """A request."""
    return {"params": {}, "input": given}


async def code_of(call: Callable[..., Any]) -> str:
    """The code of the error with which a call ends."""
    with pytest.raises(HearthNetError) as caught:
        await call()
    return caught.value.code


@pytest.mark.req("AUTHOR-1")
@pytest.mark.asyncio
async def test_function_answers_with_converted_values(mesh: Mesh) -> None:
    async with mesh.hosting(hello()) as host, await mesh.bus() as bus:
        assert host.offers == ["hello.greet@1.0"]
        assert (await bus.call(GREET, body(person={"name": "Ada"}))).output == "Hello Ada, 3"
        asked = body(person={"name": "Bo", "age": 7}, polite=True)
        assert (await bus.call("hello.greet@1.0", asked)).output == "Good day Bo, 7"
        refused = functools.partial(bus.call, GREET)
        assert await code_of(lambda: refused(body(person={}))) == "bad_request"
        assert await code_of(lambda: refused(body(person={"name": ""}))) == "not_found"
        assert await code_of(lambda: bus.call("hello.greet@2.0", asked)) == "not_found"
        contract = await bus.fetch_contract(GREET)
        assert contract.tool_schema(None, frozenset())["required"] == ["person"]


@pytest.mark.req("AUTHOR-1")
@pytest.mark.asyncio
async def test_effect_of_a_function_happens_once_per_client_id(mesh: Mesh) -> None:
    service, book = hearthnet.Service("hello"), []

    @service.capability("hello.sign@1.0", side_effects=True)
    async def sign(call: hearthnet.Call[Any, Any], name: str) -> int:
        """Sign the book."""
        book.append((name, call.idempotency_key))
        return len(book)

    key = ids.new_ulid()
    async with mesh.hosting(service), await mesh.bus() as bus:
        first = await bus.call("hello.sign", body(name="Ada", client_id=key))
        again = await bus.call("hello.sign", body(name="Ada", client_id=key))
    assert (first.output, again.output, again.meta["repeated"]) == (1, 1, True)
    assert book == [("Ada", key)]


@pytest.mark.req("AUTHOR-3")
@pytest.mark.asyncio
async def test_function_serves_its_own_node_alone(mesh: Mesh) -> None:
    async with mesh.hosting(hello(trust="member")), await mesh.bus() as bus, await mesh.guest_bus() as guest:
        asked = body(person={"name": "Ada"})
        assert (await bus.call(GREET, asked)).output == "Hello Ada, 3"
        assert await guest.offers(GREET) == []
        assert await code_of(lambda: guest.call(GREET, asked)) == "not_found"
        tell = body(capability="hello.greet@1.0")
        (own,) = await bus.offers(GREET)
        where: dict[str, Any] = {"node": own.node, "instance": own.offer.instance}
        assert (await bus.call("node.contract@1.0", tell, **where)).output["contract"]["name"] == GREET
        assert await code_of(lambda: guest.call("node.contract@1.0", tell, **where)) == "not_found"
        away = functools.partial(guest.call, GREET, asked, node=mesh.identity.node_id)
        async with mesh.hosting(hello(), at=mesh.guest):
            # It now knows the contract; neither it nor the host lets a call across.
            assert await code_of(away) == "unauthorized"
            (view,) = await bus.offers(GREET)
            assert view.node == mesh.identity.node_id


@pytest.mark.req("AUTHOR-3")
@pytest.mark.asyncio
async def test_another_homes_claim_of_a_name_is_not_believed(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A home that keeps no rule: its host announces the offer to everybody.
    monkeypatch.setattr("hearthnet.service.hosting.host.is_home_only", lambda name: False)
    async with mesh.hosting(hello(trust="member"), at=mesh.guest), await mesh.bus() as bus:
        async with await mesh.guest_bus() as guest:
            (view,) = await guest.offers(GREET)
        assert await bus.offers(GREET) == []
        assert await code_of(lambda: bus.fetch_contract(GREET)) == "not_found"
        await bus.fetch_contracts([view])
        asked = body(person={"name": "Ada"})
        assert await code_of(lambda: bus.call(GREET, asked)) == "not_found"
        async with mesh.hosting(hello()):
            reply = await bus.call(GREET, asked)
            assert reply.provider == mesh.identity.node_id
        assert await code_of(lambda: bus.call("hello.greet@1.0", asked)) == "not_found"


@pytest.mark.req("AUTHOR-4")
@pytest.mark.asyncio
async def test_contract_of_the_next_process_is_learned_anew(mesh: Mesh) -> None:
    changed = hearthnet.Service("hello")

    @changed.capability("hello.greet@1.0")
    async def greet(name: str) -> dict[str, str]:
        """Greet a person by name."""
        return {"greeting": f"Hello {name}"}

    async with await mesh.bus() as bus:
        async with mesh.hosting(hello()):
            assert (await bus.call(GREET, body(person={"name": "Ada"}))).output == "Hello Ada, 3"
            before = await bus.fetch_contract(GREET)
            assert await bus.fetch_contract(GREET) is before
        async with mesh.hosting(changed):
            assert (await bus.call(GREET, body(name="Ada"))).output == {"greeting": "Hello Ada"}
            assert (await bus.fetch_contract(GREET)).schema_hash != before.schema_hash
        async with mesh.hosting(hello()):
            assert (await bus.call(GREET, body(person={"name": "Ada"}))).output == "Hello Ada, 3"


@pytest.mark.req("AUTHOR-3")
def test_scope_covers_no_capability_of_another_namespace() -> None:
    (capability,) = hello(trust="member").functions()
    assert not covered(Scope((GREET, "rag.query")), capability.contract)
    assert covered(Scope((GREET, "rag.query")), contracts().get("rag.query@1.0"))


@pytest.mark.req("AUTHOR-2")
def test_only_a_service_is_run() -> None:
    with pytest.raises(hearthnet.InvalidRequest, match=r"run takes a hearthnet\.Service, not str"):
        hearthnet.run("hello")  # type: ignore[arg-type]
