"""Content in chunks, each of which is proved by itself."""

from __future__ import annotations

import json
from pathlib import Path

import blake3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.manifest import (
    CHUNK_BYTES,
    HASH_BYTES,
    LARGEST_BYTES,
    Cutter,
    Manifest,
    chunk_hash,
    cid_of,
    hash_of,
    is_cid,
    manifest_of,
)

VECTORS = Path(__file__).parents[1] / "conformance" / "vectors" / "content.json"


def pattern(size: int) -> bytes:
    """The bytes of the vectors: 0, 1, ... 250, again and again."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.req("FILE-1")
def test_the_vectors() -> None:
    vectors = json.loads(VECTORS.read_text())["content"]
    assert {vector["size_bytes"] for vector in vectors} >= {0, 1, CHUNK_BYTES, CHUNK_BYTES + 1}
    for vector in vectors:
        manifest = manifest_of(pattern(vector["size_bytes"]))
        assert manifest.cid == vector["cid"]
        assert manifest.cids(0, 1_000) == vector["chunks"]


@pytest.mark.req("FILE-1")
def test_up_to_one_chunk_the_cid_is_the_hash_of_the_content() -> None:
    for size in (0, 1, CHUNK_BYTES):
        assert manifest_of(pattern(size)).cid == content_hash(pattern(size))
    assert manifest_of(pattern(CHUNK_BYTES + 1)).cid != content_hash(pattern(CHUNK_BYTES + 1))


@pytest.mark.req("FILE-1")
def test_a_list_of_hashes_as_content_is_not_what_it_lists() -> None:
    whole = manifest_of(pattern(3 * CHUNK_BYTES))
    listed = whole.size.to_bytes(8, "big") + whole.hashes
    assert manifest_of(listed).cid != whole.cid
    assert cid_of(blake3.blake3(listed).digest()) != whole.cid


@pytest.mark.req("FILE-2")
def test_a_chunk_is_proved_by_itself() -> None:
    data = pattern(2 * CHUNK_BYTES + 5)
    manifest = manifest_of(data)
    manifest.check(manifest.cid)
    assert manifest.count == 3
    assert [manifest.length(index) for index in range(3)] == [CHUNK_BYTES, CHUNK_BYTES, 5]
    last = data[2 * CHUNK_BYTES :]
    assert manifest.holds(2, last)
    assert not manifest.holds(2, last[:-1] + b"x")
    assert not manifest.holds(2, last + b"x")
    assert not manifest.holds(3, b"")
    assert not manifest.holds(-1, last)
    assert not manifest.holds(1, data[:CHUNK_BYTES])
    assert manifest.cids(1, 9) == [cid_of(manifest.hash(1)), cid_of(manifest.hash(2))]
    assert b"".join(map(hash_of, manifest.cids(0, 3))) == manifest.hashes


@pytest.mark.req("FILE-2")
@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (-1, "the size of content is 0 to"),
        (2 * CHUNK_BYTES, "are 2 chunks, not 3"),
        (2 * CHUNK_BYTES + 6, "are not those of"),
        (LARGEST_BYTES + 1, "the size of content is 0 to 4294967296 bytes"),
    ],
)
def test_a_wrong_size_is_refused(size: int, reason: str) -> None:
    true = manifest_of(pattern(2 * CHUNK_BYTES + 5))
    with pytest.raises(HearthNetError, match=reason) as caught:
        Manifest(size, true.hashes).check(true.cid)
    assert caught.value.code == "bad_request"


@pytest.mark.req("FILE-2")
def test_content_of_the_largest_size_passes_and_more_does_not() -> None:
    hashes = bytes(HASH_BYTES * (LARGEST_BYTES // CHUNK_BYTES + 1))
    largest, more = Manifest(LARGEST_BYTES, hashes[HASH_BYTES:]), Manifest(LARGEST_BYTES + 1, hashes)
    largest.check(largest.cid)
    with pytest.raises(HearthNetError, match="the size of content is 0 to"):
        more.check(more.cid)


@pytest.mark.req("FILE-2")
def test_wrong_hashes_are_refused() -> None:
    true = manifest_of(pattern(2 * CHUNK_BYTES))
    for hashes, reason in (
        (true.hashes[:32], "are 2 chunks, not 1"),
        (true.hashes[32:] + true.hashes[:32], "are not those of"),
        (bytes(64), "are not those of"),
    ):
        with pytest.raises(HearthNetError, match=reason) as caught:
            Manifest(true.size, hashes).check(true.cid)
        assert caught.value.code == "bad_request"


@pytest.mark.req("FILE-2")
def test_what_is_no_cid() -> None:
    cid = content_hash(b"x")
    assert is_cid(cid)
    assert hash_of(cid) == chunk_hash(b"x")
    for text in ("", cid[:-1], cid + "0", cid.upper(), "sha256:" + cid[7:], cid + "\n", "../" + cid):
        assert not is_cid(text)
        with pytest.raises(HearthNetError, match="a CID is blake3: and 64 hex characters"):
            hash_of(text)


@given(st.lists(st.sampled_from([0, 1, 1000, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 7]), max_size=8))
@pytest.mark.req("FILE-1")
def test_pieces_of_any_size_make_the_same_chunks(sizes: list[int]) -> None:
    data = pattern(sum(sizes))
    cutter, chunks, at = Cutter(), [], 0
    for size in sizes:
        chunks += cutter.feed(data[at : at + size])
        at += size
    chunks += cutter.end()
    assert cutter.end() == []
    assert b"".join(chunks) == data
    assert all(len(chunk) == CHUNK_BYTES for chunk in chunks[:-1])
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
    assert Manifest(len(data), b"".join(map(chunk_hash, chunks))) == manifest_of(data)
