"""Every capability of a node answers every bad body in time, with a code and a line that helps, and lives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.contracts.registry import contracts
from hearthnet.core.canonical_json import refuse_repeated_keys
from hearthnet.core.errors import CODES, HearthNetError
from tests.bad_input.mutations import Bad, mutations
from tests.helpers.direct import Unanswered, ask
from tests.helpers.full_house import FullHouse, full_house
from tests.helpers.samples import sample

SECONDS: Final = 60.0
NO_ANSWER: Final = "no answer"
BUILT_IN: Final = ("node.contract@1.0", "node.trace.list@1.0")
_LONGEST: Final = 2_100
_NEVER: Final = frozenset({"internal_error", "timeout", NO_ANSWER})


class Told(NamedTuple):
    """An answer: the code, "" where it was taken, with what it says, and where the fault is."""

    code: str
    message: str
    path: str


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullHouse]:
    """One node for all of it: it has to survive."""
    with full_house(tmp_path_factory.mktemp("house")) as running:
        yield running


def complaint(contract: Contract, bad: Bad, told: Told) -> str:
    """What is wrong with the answer to `bad`; empty where nothing is."""
    code, message = told.code, told.message
    if len(bad.data) > contract.request_limit:
        return "" if code == "payload_too_large" else f"{code or 'taken'} for {len(bad.data)} bytes"
    if code in _NEVER or code not in CODES | {""}:
        return f"{code}: {message}"
    if code and not (message and len(message) <= _LONGEST and message.isprintable()):
        return f"{code} says {message[:200]!r}"
    expected = flaw(contract, bad)
    if expected is None:
        return ""
    if code != "bad_request":
        return f"{code or 'taken'} for what the contract refuses"
    if told.path != expected:
        return f"{told.path!r} is named instead of {expected!r}"
    return "" if expected in message else f"{expected} is not named in {message!r}"


def flaw(contract: Contract, bad: Bad) -> str | None:
    """Where the contract finds fault with `bad`; "" for what is no JSON, None where it is right."""
    try:
        body = msgspec.json.decode(bad.data)
        if contract.side_effects:
            refuse_repeated_keys(bad.data)
        contract.check_request(body)
    except HearthNetError as error:
        return str(error.details.get("path", ""))
    except (ValueError, RecursionError, msgspec.DecodeError):
        return ""
    return None


async def try_all(bus: Bus, views: list[OfferView], house: FullHouse) -> list[str]:
    """Sends everything bad to all that one process offers; what is wrong with its answers."""
    wrong: list[str] = []
    for view in views:
        contract = contracts().get(str(view.capability))
        right = sample(contract, house.stock)
        contract.check_request(right)
        for bad in mutations(contract, right):
            said = complaint(contract, bad, await told(bus, view, contract, bad.data))
            wrong += [f"{contract.id}: {bad.what}: {said[:300]}"] if said else []
    for view in views:
        contract = contracts().get(str(view.capability))
        after = await told(bus, view, contract, sample(contract, house.stock))
        if after.code in _NEVER:
            wrong.append(f"{contract.id} afterwards: {after.code}: {after.message}")
    return wrong


async def told(bus: Bus, view: OfferView, contract: Contract, body: Any) -> Told:
    """What came of one call."""
    try:
        await ask(bus, view, contract, body, SECONDS)
    except Unanswered as error:
        return Told(NO_ANSWER, error.message, "")
    except HearthNetError as error:
        return Told(error.code, error.message, str(error.details.get("path", "")))
    return Told("", "", "")


@pytest.mark.timeout(600)
@pytest.mark.req("BADINPUT-1")
@pytest.mark.asyncio
async def test_what_nobody_should_send_is_refused_in_words_and_the_services_live(house: FullHouse) -> None:
    before = house.processes
    async with await Bus.join(house.home, house.url, "bad input") as bus:
        by_process: dict[str, list[OfferView]] = {}
        offered = await house.offers(bus)
        for name in BUILT_IN:  # told only to who asks for exactly this
            offered += (await bus.offers(name))[:1]
        tried = {
            str(view.capability): view for view in offered if not is_provider_defined(view.capability.name)
        }
        assert set(tried) == {contract.id for contract in contracts()}
        for view in tried.values():
            by_process.setdefault(view.offer.instance, []).append(view)
        found = await asyncio.gather(*(try_all(bus, views, house) for views in by_process.values()))
        wrong = [line for lines in found for line in lines]
    assert not wrong, f"{len(wrong)} answers are wrong:\n" + "\n".join(wrong[:40])
    assert house.processes == before
