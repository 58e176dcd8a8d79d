"""Many messages by one request."""

from __future__ import annotations

import pytest

from hearthnet.service.effects.direct_reads import by_number, by_subject
from tests.helpers.mesh import Mesh

pytestmark = pytest.mark.asyncio


@pytest.mark.req("HOMES-12")
async def test_messages_are_read_by_number_and_subject_without_erased_ones(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        for name in "abcdefgh":
            await store.js.publish(f"mk.post.me.{name}", name.encode(), stream="MARKET")
        await store.js.delete_msg("MARKET", 3)
        found = await by_number(store, "MARKET", {1, 2, 3, 4, 7}, "the test")
        assert {number: found[number].data for number in (1, 2, 4, 7)} == {1: b"a", 2: b"b", 4: b"d", 7: b"g"}
        assert 3 not in found
        assert await by_number(store, "MARKET", (), "the test") == {}
        assert await by_number(store, "MARKET", {900}, "the test") == {}
        subjects = ["mk.post.me.b", "mk.post.me.c", "mk.post.me.h", "mk.post.me.never"]
        newest = await by_subject(store, "MARKET", subjects, "the test")
        assert {subject: one.data for subject, one in newest.items()} == {
            subjects[0]: b"b",
            subjects[2]: b"h",
        }
        assert await by_subject(store, "MARKET", subjects[3:], "the test") == {}
