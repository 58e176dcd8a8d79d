"""Server-sent events as a client reads them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx2


class Event(NamedTuple):
    """One event: its number, name and data."""

    seq: int
    event: str
    data: Any


async def events_of(answer: httpx2.Response) -> AsyncIterator[Event]:
    """The events of a streamed answer, comments left out."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "data" in fields:
            yield Event(int(fields.get("id", 0)), fields.get("event", ""), json.loads(fields["data"]))
        fields = {}


async def all_events(http: httpx2.AsyncClient, body: dict[str, Any]) -> list[Event]:
    """All events of one call."""
    headers = {"Accept": "text/event-stream"}
    async with http.stream("POST", "/v1/call", json=body, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        return [event async for event in events_of(answer)]
