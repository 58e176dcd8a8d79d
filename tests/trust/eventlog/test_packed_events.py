"""Compressed pages of the event log."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.eventlog import packed_events
from tests.helpers import large_community


@pytest.mark.req("SCALE-6")
def test_a_page_of_posts_takes_less_than_half_and_comes_back_the_same() -> None:
    community = large_community.key("root").node_id
    page = list(large_community.posts(community, large_community.members(20), 100))
    packed = packed_events.pack(page)
    assert len(packed) * 2 < len(msgspec.json.encode(page))
    assert packed_events.unpack(packed) == page
    assert packed_events.unpack(packed_events.pack([])) == []


@pytest.mark.req("SCALE-6")
def test_a_page_that_is_damaged_or_too_large_is_refused() -> None:
    whole = zlib.compress(b"[%b]" % b" ".ljust(packed_events.MAX_BYTES, b" "))
    for data in (whole, whole[:-9], b"", b"nonsense", zlib.compress(b"{}"), zlib.compress(b"[")):
        with pytest.raises(HearthNetError):
            packed_events.unpack(ids.b64(data))
    with pytest.raises(HearthNetError):
        packed_events.unpack("not base64!")


@pytest.mark.req("SCALE-6")
def test_of_a_page_with_malformed_values_the_others_are_read() -> None:
    community = large_community.key("root").node_id
    page = list(large_community.posts(community, large_community.members(3), 3))
    values = [*msgspec.to_builtins(page), {"entry": {}, "body": ""}, 7]
    assert packed_events.unpack(ids.b64(zlib.compress(msgspec.json.encode(values)))) == page
