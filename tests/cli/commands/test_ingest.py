"""What `hearthnet ingest` knows before it stores anything."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.cli.commands.ingest import is_full, largest, patiently, without_text
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.offer import OfferRecord


def view(**params: Any) -> OfferView:
    """An offer to take documents."""
    name = "rag.ingest@1.0"
    record = OfferRecord(
        capability=name,
        instance="abcdefgh",
        schema_hash="",
        params=params,
        max_concurrent=1,
        in_flight=0,
        issued_at=0,
        expires_at=1,
    )
    return OfferView("ed25519:" + "A" * 43, parse_capability(name), record)


@pytest.mark.req("CLI-9")
@pytest.mark.parametrize(
    ("offers", "most"),
    [
        ([], None),
        ([view(max_document_bytes=7), view(max_document_bytes=9)], 9),
        ([view(max_document_bytes=7), view()], None),
        ([view(max_document_bytes="9")], None),
    ],
)
def test_a_file_is_too_large_only_when_it_is_for_everybody(offers: list[OfferView], most: int | None) -> None:
    assert largest(offers) == most


def taken(retry_after_ms: int | None = 1) -> HearthNetError:
    """The error of a service all places of which are taken; of a full disk without a time to wait."""
    return HearthNetError("capacity_exceeded", "no", retry_after_ms=retry_after_ms)


class Places:
    """A service that takes a document after so many errors."""

    def __init__(self, *errors: HearthNetError) -> None:
        self.errors = list(errors)

    async def add(self) -> dict[str, Any]:
        """Add a document."""
        if self.errors:
            raise self.errors.pop(0)
        return {"title": "Bees"}


@pytest.mark.req("CLI-9")
@pytest.mark.asyncio
async def test_a_file_waits_for_places_that_others_take() -> None:
    places = Places(taken(), taken(0))

    assert await patiently(places.add, 60) == {"title": "Bees"}
    assert not places.errors


@pytest.mark.req("CLI-9")
@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (taken(), 0),
        (taken(None), 60),
        (HearthNetError("bad_request", "no"), 60),
        (HearthNetError("rate_limited", "no", retry_after_ms=1), 60),
    ],
)
@pytest.mark.asyncio
async def test_a_file_waits_for_nothing_else(error: HearthNetError, seconds: float) -> None:
    with pytest.raises(HearthNetError) as raised:
        await patiently(Places(error).add, seconds)
    assert raised.value is error


@pytest.mark.req("CLI-9")
def test_only_a_full_disk_keeps_other_files_from_being_tried() -> None:
    assert is_full(taken(None).to_body())
    assert not is_full(taken().to_body())
    assert not is_full(HearthNetError("bad_request", "no").to_body())


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], ""),
        ([(4, 4)], "page 4 holds no text (scanned?)"),
        ([(3, 5)], "pages 3-5 hold no text (scanned?)"),
        ([(3, 5), (9, 9)], "pages 3-5, 9 hold no text (scanned?)"),
        ([(n, n) for n in range(1, 20, 2)], "pages 1, 3, 5, 7, 9, 11, 13, 15, ... hold no text (scanned?)"),
    ],
)
def test_pages_in_words(runs: list[tuple[int, int]], words: str) -> None:
    shown = [{"first": first, "last": last} for first, last in runs]
    assert without_text({"pages_without_text": shown}) == words


def test_a_document_without_the_member_gets_no_note() -> None:
    assert without_text({}) == ""
