"""Signed packages between homes: a service process of each home, and callers that have no package at all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from hearthnet import Call, Offer, Reply, Service
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.contract_fetch import other_claims
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts import Contract, contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.service.decorators import Endpoint
from hearthnet.trust.contract_signature import shared_contract
from hearthnet.trust.keys import Identity
from tests.helpers import direct
from tests.helpers.mesh import Mesh
from tests.helpers.packages import contract, service_code, sign, write_package
from tests.helpers.service_processes import processes_of_service
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
ANNA, BERTA = Identity(b"a" * 32), Identity(b"b" * 32)
PLAIN = "hello.greet@1.0"
GREET = msgspec.convert(contract(), Contract)
OF_ANNA, OF_BERTA = (shared_contract(GREET, key.node_id) for key in (ANNA, BERTA))
BODY = {"params": {}, "input": {"name": "Ada"}}
FUNCTION = '''"""A service of functions."""

import hearthnet

service = hearthnet.Service("hello")


@service.capability("hello.greet@1.0", trust="member")
async def greet(name: str) -> str:
    """Greet a person by name.

    Args:
        name: Name of the person.
    """
    return f"Hello {name}"
'''


class Installer:
    """Homes with the package `hello`, each with a signature and a greeting of its own."""

    def __init__(self, mesh: Mesh, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._mesh, self._folder, self._monkeypatch = mesh, folder, monkeypatch

    @contextlib.asynccontextmanager
    async def home(self, home: Home, greeting: str, key: Identity | None) -> AsyncIterator[OfferView]:
        """The service of one home runs; its offer at home."""
        site = self._folder / greeting
        folder = write_package(site, "hello", contract(), code=service_code("hello", greeting=greeting))
        if key is not None:
            sign(folder, key)
        self._monkeypatch.setenv("PYTHONPATH", str(site))
        with self._mesh.published(at=home):
            async with (
                await self._mesh.bus(at=home) as bus,
                processes_of_service(bus, home, PLAIN) as running,
            ):
                yield running.views[0]


@pytest.fixture
def installer(mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    return Installer(mesh, tmp_path, monkeypatch)


async def names(bus: Bus) -> set[str]:
    """The capabilities of greeting that a process sees."""
    return {str(view.capability) for view in await bus.offers() if "greet" in view.capability.name}


async def see(bus: Bus, *expected: str) -> None:
    """Wait until a process sees these: on a busy machine a home may answer later than a find waits."""

    async def complete() -> bool:
        return set(expected) <= await names(bus)

    await wait_for(complete, what=f"offers of {expected}")


async def refusal(bus: Bus, capability: str, **given: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await bus.call(capability, BODY, **given)
    return caught.value


@pytest.mark.req("OTHERS-5", "OTHERS-6", "ATTACK-29")
async def test_a_signed_package_is_called_under_its_key(mesh: Mesh, installer: Installer) -> None:
    async with installer.home(mesh.home, "Hello", ANNA) as at_home, await mesh.guest_bus() as guest:
        await see(guest, OF_ANNA.id)
        assert await names(guest) == {OF_ANNA.id}
        reply = await guest.call(OF_ANNA.name, BODY, node=mesh.identity.node_id)
        assert (reply.output, reply.provider) == ({"text": "Hello Ada"}, mesh.identity.node_id)
        assert (await guest.fetch_contract(OF_ANNA.name)).summary == GREET.summary
        # Under its plain name nobody else reaches it: neither by a lookup, nor by a frame of its own making.
        error = await refusal(guest, "hello.greet")
        assert (error.code, error.alt) == ("not_found", [OF_ANNA.name])
        assert f"others offer {OF_ANNA.name} (1 home): call one of these names" in error.message
        with pytest.raises(HearthNetError) as caught:
            await direct.ask(guest, at_home, GREET, BODY)
        assert caught.value.code == "unauthorized"


@pytest.mark.req("OTHERS-6")
async def test_claims_of_two_keys_are_never_merged(mesh: Mesh, installer: Installer) -> None:
    async with (
        installer.home(mesh.home, "Hello", ANNA) as here,
        installer.home(mesh.guest, "Hallo", BERTA) as there,
        await mesh.bus() as bus,
    ):
        await see(bus, PLAIN, OF_ANNA.id, OF_BERTA.id)
        for _ in range(3):
            assert (await bus.call(OF_ANNA.name, BODY)).output == {"text": "Hello Ada"}
            assert (await bus.call(OF_BERTA.name, BODY, node=there.node)).output == {"text": "Hallo Ada"}
        assert (await refusal(bus, OF_ANNA.name, node=there.node)).code == "not_found"
        assert (await refusal(bus, OF_BERTA.name, node=here.node)).code == "not_found"
        # The plain name is that of the own home's package, whatever others offer; a third home would choose.
        claims = other_claims("hello.greet", await bus.offers())
        assert claims is not None
        assert claims.alt == sorted([OF_ANNA.name, OF_BERTA.name])
        async with await mesh.guest_bus() as guest:
            assert (await bus.call("hello.greet", BODY)).output == {"text": "Hello Ada"}
            assert (await guest.call("hello.greet", BODY)).output == {"text": "Hallo Ada"}


@pytest.mark.req("OTHERS-6")
async def test_an_unsigned_package_stays_at_home(mesh: Mesh, installer: Installer) -> None:
    async with (
        installer.home(mesh.home, "Hello", None) as at_home,
        await mesh.bus() as bus,
        await mesh.guest_bus() as guest,
    ):
        assert await names(bus) == {PLAIN}
        assert await direct.ask(bus, at_home, GREET, BODY) | {"meta": {}} == {
            "output": {"text": "Hello Ada"},
            "meta": {},
        }
        assert await names(guest) == set()
        assert (await refusal(guest, "hello.greet")).code == "not_found"


class Impostor(Service):
    """Offers Anna's name for a contract that she did not sign; its version sorts before hers."""

    name: ClassVar[str] = "impostor"

    def __init__(self) -> None:
        super().__init__()
        drafts = (msgspec.structs.replace(GREET, summary=f"Greet badly, {number}.") for number in range(9))
        made = (shared_contract(draft, ANNA.node_id) for draft in drafts)
        self.contract = min(made, key=lambda one: one.id)

    def offers(self) -> list[Offer]:
        return [Offer(capability=self.contract.id)]

    def endpoints(self) -> list[Endpoint]:
        anything = dict[str, Any]
        return [Endpoint(self.contract, self.greet, params_type=anything, input_type=anything)]

    async def greet(self, call: Call[Any, Any]) -> Reply:
        raise AssertionError("called")


@pytest.mark.req("OTHERS-5", "OTHERS-6", "ATTACK-29")
async def test_a_name_without_its_keys_signature_is_not_learned(mesh: Mesh, installer: Installer) -> None:
    impostor = Impostor()
    assert impostor.contract.id < OF_ANNA.id
    async with (
        mesh.hosting(impostor),
        installer.home(mesh.guest, "Hello", ANNA) as there,
        await mesh.bus() as bus,
    ):
        assert (await refusal(bus, impostor.contract.id)).code == "invalid_signature"
        contracts.cache_clear()

        await see(bus, impostor.contract.id, OF_ANNA.id)
        # Even as the own node's offer it only costs a question; the signed one is found, and called where the
        # caller names its home.
        error = await refusal(bus, OF_ANNA.name)
        assert (error.code, error.details) == ("not_found", {"providers": [there.node]})
        reply = await bus.call(OF_ANNA.name, BODY, node=there.node)
        assert reply.output == {"text": "Hello Ada"}


@pytest.mark.req("OTHERS-6")
async def test_a_signed_function_is_called_from_another_home(
    mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brings = "[hearthnet.contracts]\nhello = hello_package.contracts\n"
    serves = "[hearthnet.services]\nhello = hello_package:service\n"
    folder = write_package(tmp_path, "hello", code=FUNCTION, entry_points=brings + serves)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    frozen = Shell(tmp_path / "home").run("contract", "freeze", "hello_package")
    assert frozen.returncode == 0, frozen.stderr
    sign(folder, ANNA)
    with mesh.published():
        async with await mesh.bus() as bus, processes_of_service(bus, mesh.home, PLAIN):
            async with await mesh.guest_bus() as guest:
                (shared,) = await wait_for(lambda: names(guest), what="the signed offer")
                assert shared.startswith(f"{OF_ANNA.name}@")
                reply = await guest.call(shared, BODY, node=mesh.identity.node_id)
                assert reply.output == "Hello Ada"
            assert (await bus.call("hello.greet", BODY)).output == "Hello Ada"
