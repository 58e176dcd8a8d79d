"""`python -m tests.homes.month HOME DAYS POSTS`: a home's posts of the days up to today, so many each day.

They are written into the log of the node that runs there, with the dates of those days, as its market wrote
them then; the node publishes them. It must not have published a later one.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.bus.session.keyring import load_identity, load_roster
from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash, digest
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.service.effects.event_log import Event
from hearthnet_market.schemas import CREATED
from hearthnet_market.service import PREFIX, STREAM

_DAY_MS: Final = 24 * 3_600_000
_WEEK_SECONDS: Final = 7 * 24 * 3_600


async def main(home: Home, days: int, posts: int) -> None:
    """Write the posts, the oldest first."""
    own = load_identity(home.device_key).node_id
    community, now = load_roster(home.roster, own).community_id, now_ms()
    async with await Store.connect(home, "month") as store:
        for number in range(days * posts):
            at = now - (days - number // posts) * _DAY_MS + number % posts
            event = _post(own, community, at, f"Day {number // posts} post {number % posts}")
            subject = f"{PREFIX}.{ids.subject_token(own)}.{event.client_id}"
            await store.js.publish(subject, msgspec.json.encode(event), stream=STREAM)


def _post(author: str, community: str, at: int, title: str) -> Event:
    key = ids.new_ulid(at)
    data = {"client_id": key, "category": "offer", "title": title, "body": "x" * 1_000}
    return Event(
        event_id=ids.new_ulid(at),
        event_type=CREATED,
        wall_clock=rfc3339(at),
        community_id=community,
        author=author,
        client_id=key,
        data={**data, "ttl_seconds": _WEEK_SECONDS},
        arguments_digest=digest(data),
        frame=content_hash(title.encode()),
        approval=None,
    )


if __name__ == "__main__":
    asyncio.run(main(Home(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])))
