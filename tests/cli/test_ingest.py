"""What `hearthnet ingest` knows before it stores anything."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.bus import OfferView
from hearthnet.cli.ingest import largest
from hearthnet.types import parse_capability
from hearthnet.wire.offer import OfferRecord


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
