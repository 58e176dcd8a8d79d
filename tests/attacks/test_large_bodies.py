"""A member that fills a node's logs: with fields that nobody knows, with large posts, with long lists."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.service.effects.event_log import MAX_DAY_BYTES
from tests.attacks.attacker import LIST, POST, Attacker, post_body
from tests.helpers.mesh import GuestBus
from tests.helpers.neighbourhood import Neighbourhood, settle_in
from tests.helpers.shell import Shell

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio, pytest.mark.req("ATTACK-32")]
ADVERTISE = "file.advertise@1.0"
SECRET = "kaleidoscope"


class Node:
    """A node whose calls are not limited in number, and a member of its community."""

    def __init__(self, neighbourhood: Neighbourhood) -> None:
        self.home = neighbourhood.founder
        self.member = neighbourhood.home("mallory")
        self.shell = Shell(self.home.path)
        self.id = load_identity(self.home.device_key).node_id
        self.url = ""
        self._running = self.shell.node()

    def start(self) -> None:
        """Starts it, again after `stop`."""
        self._running = self.shell.node()
        self.url = str(self._running.__enter__()["server"]["url"])

    def stop(self) -> None:
        """Stops it."""
        self._running.__exit__(None, None, None)

    async def bytes_of(self, stream: str) -> int:
        """The bytes of one of its logs."""
        async with await Store.connect(self.home, "test") as store:
            return int((await store.js.stream_info(stream)).state.bytes)

    @asynccontextmanager
    async def mallory(self) -> AsyncIterator[Attacker]:
        """The member's process."""
        bus = await GuestBus.at(self.id, self.member, self.url, "mallory")
        try:
            yield Attacker(bus)
        finally:
            await bus.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """`hearthnet up` with its processes."""
    patience = "[limits]\ncapability_soft = 0\ncapability_hard = 0\ntotal_soft = 0\ntotal_hard = 0\n"
    folder: Path = tmp_path_factory.mktemp("large")
    node = Node(settle_in(folder, "mallory", services=("market", "file"), settings=patience))
    node.start()
    try:
        yield node
    finally:
        node.stop()


@pytest_asyncio.fixture
async def mallory(node: Node) -> AsyncIterator[Attacker]:
    """A member who means harm."""
    async with node.mallory() as attacker:
        yield attacker


async def _market(attacker: Attacker, node: Node) -> OfferView:
    return await attacker.target(LIST, node.id)


async def test_fields_that_nobody_knows_are_not_kept(node: Node, mallory: Attacker) -> None:
    market, before = await _market(mallory, node), await node.bytes_of("MARKET")
    for _ in range(12):
        body = post_body("Large")
        body["input"]["unknown"] = "x" * 900_000
        error = await mallory.refusal(market, POST, body)
        assert (error.code, error.details) == ("payload_too_large", {"limit": 65_536})
    assert await mallory.posted("Large") == 0
    assert await node.bytes_of("MARKET") == before
    body["input"]["unknown"] = "x" * 4_000_000
    header = mallory.header(market, POST, body)
    huge = mallory.boxed(mallory.inner(header, body, signed=True), market)
    assert await mallory.strike(mallory.subject(market, POST), huge, header.id, market) == "payload_too_large"
    assert await mallory.posted("Large") == 0
    before = await node.bytes_of("MARKET")
    # What fits is taken, and its fields that nobody knows are kept nowhere: not with the frame either.
    places = {"lat": 52, "lng": 8, "label": "Mill Lane", "unknown": "x" * 20_000}
    for number in range(12):
        body = post_body("Small")
        body["input"] |= {"unknown": "x" * 40_000, "location": places}
        assert await mallory.call(market, POST, body) == "ok", number
    assert await mallory.posted("Small") == 12
    assert await node.bytes_of("MARKET") - before < 12 * 1_500
    assert await node.bytes_of("AUDIT") < 100_000


async def test_long_lists_are_not_kept_in_the_audit_log(node: Node, mallory: Attacker) -> None:
    before = await node.bytes_of("AUDIT")
    files = await mallory.target(ADVERTISE, node.id)
    cids = [f"blake3:{hashlib.sha256(b'%d' % number).hexdigest()}" for number in range(800)]
    body: dict[str, Any] = {"params": {}, "input": {"cids": cids}}
    for _ in range(20):
        assert await mallory.call(files, ADVERTISE, body, signed=True) == "ok"
    assert await node.bytes_of("AUDIT") - before < 20 * 3_000
    assert node.shell.run("audit", "verify").returncode == 0


async def test_large_posts_end_at_a_quota_and_their_owner_erases_them(node: Node, mallory: Attacker) -> None:
    before = await node.bytes_of("MARKET")
    first = {**post_body(SECRET)["input"], "body": f"{SECRET} " + "\N{FIRE}" * 3_900}
    made = (await mallory.bus.call(POST, {"params": {}, "input": first}, node=node.id)).output["event_id"]
    refused = await _flooded(mallory, node.id)
    assert (refused.code, refused.rule) == ("rate_limited", "bytes_a_day")
    assert refused.details["limit"] == MAX_DAY_BYTES
    assert refused.retry_after_ms is not None
    assert "4 MB" in refused.message
    assert await node.bytes_of("MARKET") - before < MAX_DAY_BYTES + 100_000
    owner = node.shell.json("market", "post", "--title", "Owner", "--body", "Mine.", "--json")
    assert "market erase" in json.dumps(node.shell.json("status", "--json"))
    # What takes back is taken all the same.
    ended = {"client_id": ids.new_ulid(), "event_id": await _one_of(mallory), "reason": "withdrawn"}
    await mallory.bus.call("market.expire@1.0", {"params": {}, "input": ended}, node=node.id)
    # The member cannot erase what is the owner's; the owner can, and it stays away.
    theirs = {"client_id": ids.new_ulid(), "event_id": owner["event_id"]}
    with pytest.raises(HearthNetError, match="only its author"):
        await mallory.bus.call("market.delete@1.0", {"params": {}, "input": theirs})
    erased = await asyncio.to_thread(node.shell.json, "market", "erase", made, "--yes", "--json")
    assert erased == {"deleted": 1, "erased": True}
    node.stop()
    assert not [file for file in node.home.jetstream.rglob("*") if file.is_file() and _holds(file)]
    for file in node.home.service("market").glob("view.*"):
        file.unlink()
    node.start()
    async with node.mallory() as again:
        await _market(again, node)
        assert (await _flooded(again, node.id)).rule == "bytes_a_day", "a restart gives nobody a new quota"
        assert (await again.bus.call(POST, {"params": {}, "input": first}, node=node.id)).output[
            "event_id"
        ] == made
        assert await again.posted(SECRET) == 0
        assert await again.posted("Owner") == 1
    assert node.shell.run("audit", "verify").returncode == 0


def _holds(file: Path) -> bool:
    return SECRET.encode() in file.read_bytes()


async def _flooded(attacker: Attacker, node: str) -> HearthNetError:
    """Post as large as is valid until it is refused."""
    for _ in range(MAX_DAY_BYTES // 32_000):
        body = post_body("Flood")
        body["input"] |= {"body": "\N{FIRE}" * 4_000, "tags": ["\N{FIRE}" * 40] * 16}
        try:
            await attacker.bus.call(POST, body, node=node)
        except HearthNetError as error:
            return error
    raise AssertionError("the flood has no end")


async def _one_of(attacker: Attacker) -> str:
    listed = await attacker.bus.call(LIST, {"params": {}, "input": {"limit": 500}})
    return str(next(post["event_id"] for post in listed.output["posts"] if post["title"] == "Flood"))


async def test_what_stands_beside_a_body_is_bounded_too(node: Node, mallory: Attacker) -> None:
    """Fields of the header and of the frame, refused bodies, and calls that fail are recorded as well."""
    market, large = await _market(mallory, node), "x" * 40_000
    before = await node.bytes_of("MARKET") + await node.bytes_of("AUDIT")
    tries: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"token": large}),
        ({}, {"idempotency_key": large}),
        ({}, {"approval": {"id": large}}),
        ({}, {"run": large}),
        ({}, {"traceparent": large}),
        ({"client_id": large}, {}),
        ({"title": large}, {}),
        ({"category": large}, {}),
        ({"location": {"lat": 52, "lng": 8, "label": large}}, {}),
        ({"tags": [large]}, {}),
        ({"expires_at": large}, {}),
    ]
    for changed, header in tries:
        body = post_body("Beside")
        body["input"] |= changed
        for _ in range(5):
            await mallory.call(market, POST, body, **header)
    grown = await node.bytes_of("MARKET") + await node.bytes_of("AUDIT") - before
    assert grown < 5 * len(tries) * 4_096
