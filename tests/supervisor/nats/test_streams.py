"""What JetStream holds keeps its promises on a real server: nothing recorded can be taken back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from hearthnet.bus.store import CLAIMS
from hearthnet.supervisor.nats import streams
from tests.helpers.nats_server import NatsServer

if TYPE_CHECKING:
    from nats.aio.client import Client


@pytest_asyncio.fixture
async def client(nats_server: Callable[..., NatsServer], tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server that holds what a node's holds."""
    from nats.aio.client import Client

    folder = json.dumps(str(tmp_path / "js"))
    connected = Client()
    await connected.connect(
        nats_server(f"jetstream {{\n store_dir: {folder}\n sync_interval: always\n}}").url
    )
    await streams.ensure(connected.jetstream(), tmp_path)
    yield connected
    await connected.close()


@pytest.mark.req("SCALE-4")
@pytest.mark.asyncio
async def test_streams_of_an_earlier_version_take_batches(client: Client, tmp_path: Path) -> None:
    js = client.jetstream()
    earlier = streams.promised_streams()[0].evolve(allow_atomic=False)
    await js.delete_stream("MARKET")
    await js.add_stream(earlier)
    await js.publish("mk.post.me.1", b"x")
    await streams.ensure(js, tmp_path)
    after = await js.stream_info("MARKET")
    assert (after.config.allow_atomic, after.state.messages) == (True, 1)


@pytest.mark.req("EFFECT-1")
@pytest.mark.asyncio
async def test_nothing_recorded_can_be_deleted_or_purged(client: Client) -> None:
    from nats.js.errors import APIError

    js = client.jetstream()
    await js.publish("mk.post.me.1", b"x")
    await js.publish("cm.event.me.1", b"x")
    await js.publish("au.entry", b"x")
    await (await js.key_value(CLAIMS)).create("a.b", b"x")
    await client.request("ct.token.calls", b"", headers={"Nats-Incr": "1"})
    for name in ("MARKET", "COMMUNITY", "AUDIT", f"KV_{CLAIMS}", "COUNTERS"):
        if name != "MARKET":  # what its author deletes is erased
            with pytest.raises(APIError, match="not permitted"):
                await js.delete_msg(name, 1)
        with pytest.raises(APIError, match="not permitted"):
            await js.purge_stream(name)
        assert (await js.get_msg(name, 1, direct=True)).seq == 1


@pytest.mark.req("EFFECT-1")
@pytest.mark.asyncio
@pytest.mark.parametrize("subject", ["cm.event.me.1", "cm.revoked.me.2"])
async def test_a_place_in_the_communitys_log_is_taken_once(client: Client, subject: str) -> None:
    from nats.js.errors import APIError

    js = client.jetstream()
    await js.publish(subject, b"first")
    with pytest.raises(APIError) as caught:
        await js.publish(subject, b"second")
    assert caught.value.err_code == 10077  # maximum messages per subject exceeded
    assert (await js.get_last_msg("COMMUNITY", subject, direct=True)).data == b"first"


@pytest.mark.req("EFFECT-1")
@pytest.mark.asyncio
async def test_a_counter_gives_each_increment_a_number_of_its_own(client: Client) -> None:
    async def count() -> int:
        answer = await client.request("ct.token.calls", b"", headers={"Nats-Incr": "1"})
        value: dict[str, Any] = json.loads(answer.data)
        return int(value["val"])

    assert sorted(await asyncio.gather(*(count() for _ in range(50)))) == list(range(1, 51))
    info = await client.jetstream().stream_info("COUNTERS")
    assert info.state.messages == 1
    assert info.config.max_age == streams.COUNTED_SECONDS
