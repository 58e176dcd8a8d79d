"""Compressed pages of the event log."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.eventlog import packed_events
from hearthnet.trust.eventlog.entries import LogEvent
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


def a_post() -> LogEvent:
    """One event of the log."""
    return next(large_community.posts(large_community.key("root").node_id, large_community.members(1), 1))


@pytest.mark.req("SCALE-14")
def test_a_compact_page_is_a_third_smaller_and_comes_back_the_same() -> None:
    community = large_community.key("root").node_id
    page = list(large_community.posts(community, large_community.members(20), 100))
    compact = packed_events.pack_compact(page)
    assert len(compact) < 0.75 * len(packed_events.pack(page))
    assert packed_events.unpack_compact(compact) == page
    assert packed_events.unpack_compact(packed_events.pack_compact([])) == []


@pytest.mark.req("SCALE-14")
@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        '{"frame":""}',
        f'{{"frame":"{"A" * 64}"}}',
        f'{{"frame":"{"A" * 65}"}}',  # no base64url
        f'{{"frame":"{"A" * 65}B"}}',  # not as it would be written
        f'{{"note":"\\"frame\\":\\"{"A" * 64}","frame":"{"_-" * 40}","more":"{"A" * 64}"}}',
        "\u00ff\U0001f525 no JSON",
    ],
)
def test_any_body_of_a_compact_page_comes_back_the_same(body: str) -> None:
    entry = a_post().entry
    page = [LogEvent(entry, body)]
    assert packed_events.unpack_compact(packed_events.pack_compact(page)) == page


@pytest.mark.req("SCALE-14")
def test_of_a_compact_page_with_malformed_values_the_others_are_read() -> None:
    entry = a_post().entry
    rows = [[entry, "{}", "", ""], [entry, "{}", "\u0100", ""], [{}, "", "", ""], 7, [entry, "{}"]]
    packed = ids.b64(zlib.compress(msgspec.json.encode(rows)))
    assert packed_events.unpack_compact(packed) == [LogEvent(entry, "{}")]
    for damaged in ("not base64!", ids.b64(b"nonsense"), ids.b64(zlib.compress(b"{}"))):
        with pytest.raises(HearthNetError):
            packed_events.unpack_compact(damaged)


@pytest.mark.req("SCALE-6", "SCALE-14")
def test_events_of_a_page_are_the_same_in_each_form() -> None:
    community = large_community.key("root").node_id
    page = list(large_community.posts(community, large_community.members(3), 3))
    for form in (
        {"events": msgspec.to_builtins(page)},
        {"events": [], "packed": packed_events.pack(page)},
        {"events": [], "packed": "", "compact": packed_events.pack_compact(page)},
        {"events": [], "compact": packed_events.pack_compact(page)},
    ):
        assert packed_events.events_in(form) == page
    assert packed_events.events_in({"events": []}) == []
