"""Conversations with revisions: two pages overwrite nothing, and parted nodes end with the same."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hearthnet.agent.devices import conversation as conversations
from hearthnet.agent.devices import conversation_store
from hearthnet.agent.devices.conversation import Conversation, from_text, merged, revised, to_text
from hearthnet.agent.devices.conversation_store import ConversationStore
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.trust.keys import Identity

OWN = Identity(b"o" * 32)
ID = "01JZZZZZZZZZZZZZZZZZZZZZ70"


def store(folder: Path, principal: str = "ada", identity: Identity = OWN) -> ConversationStore:
    return ConversationStore(Home.resolve(folder), identity, principal)


def said(at: ConversationStore, text: str, base: str = "", name: str = ID) -> Conversation:
    return at.change(name, base, text, {"answers": [text]}, 1)


def refusal(work: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as refused:
        work()
    return refused.value


@pytest.mark.req("CONV-1", "CONV-2")
def test_a_change_of_an_older_revision_is_refused_with_the_present_one(tmp_path: Path) -> None:
    at = store(tmp_path)
    assert at.all() == []
    first = said(at, "Water?")
    second = said(at, "Water? Boil it.", first.revision)
    assert (second.history, second.at) == ([first.revision], first.at)
    for base in ("", first.revision):
        error = refusal(lambda base=base: said(at, "Else", base))
        assert (error.code, error.details) == (
            "bad_request",
            {"rule": "revision", "revision": second.revision},
        )
    assert at.all() == [second]
    assert store(tmp_path).find(ID) == second, "as another process reads it"
    assert at.find("../x") is None


@pytest.mark.req("CONV-3", "ATTACK-92")
def test_they_are_sealed_for_one_principal_and_one_node(tmp_path: Path) -> None:
    at = store(tmp_path)
    said(at, "A secret")
    (path,) = [one for one in at.folder.iterdir() if ids.is_ulid(one.name)]
    assert b"secret" not in path.read_bytes()
    (at.folder / ids.new_ulid()).write_bytes(path.read_bytes())
    assert [one.id for one in at.all()] == [ID], "nor is it another conversation"
    other = store(tmp_path, "bob")
    assert other.all() == []
    other.folder.mkdir(parents=True)
    (other.folder / ID).write_bytes(path.read_bytes())
    assert other.find(ID) is None, "sealed for another principal"
    assert store(tmp_path, identity=Identity(b"x" * 32)).all() == []


@pytest.mark.req("CONV-4")
def test_a_deleted_one_stays_deleted_and_is_forgotten_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = store(tmp_path)
    first = said(at, "Water?")
    at.delete(ID)
    at.delete(ID)
    (left,) = at.all()
    assert (left.deleted, left.title, left.content, left.history) == (True, "", {}, [first.revision])
    assert refusal(lambda: said(at, "Water?")).code == "not_found"
    assert refusal(lambda: at.delete(ids.new_ulid())).code == "not_found"
    at.take_in(revised(first, ID, "Water? Boil it.", {}, 1, 9_999_999_999_999))
    assert [one.deleted for one in at.all()] == [True]
    monkeypatch.setattr(conversation_store, "MAX_DELETED", 1)
    other = ids.new_ulid()
    said(at, "More", name=other)
    at.delete(other)
    assert [one.id for one in at.all()] == [other]
    monkeypatch.setattr(conversation_store, "DELETED_MS", -1_000)
    at.delete(other)
    assert at.all() == []


@pytest.mark.req("CONV-5", "ATTACK-92")
def test_count_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = store(tmp_path)
    first = said(at, "Water?")
    noise = os.urandom(200_000).hex()
    for text in (noise, "x" * (conversations.MAX_UNPACKED + 1)):
        error = refusal(lambda text=text: at.change(ID, first.revision, "", {"a": text}, 1))
        assert error.code == "payload_too_large"
    monkeypatch.setattr(conversation_store, "MAX_CONVERSATIONS", 1)
    assert refusal(lambda: said(at, "Else", name=ids.new_ulid())).code == "capacity_exceeded"
    said(at, "Water? Yes.", first.revision)
    monkeypatch.setattr(conversation_store, "MAX_CONVERSATIONS", 9)
    monkeypatch.setattr(conversation_store, "MAX_BYTES", 300)
    assert refusal(lambda: said(at, noise[:2_000], name=ids.new_ulid())).code == "capacity_exceeded"


@pytest.mark.req("CONV-6")
def test_of_two_that_went_on_apart_both_are_kept() -> None:
    begun = revised(None, ID, "Water?", {}, 1, 1)
    later = revised(begun, ID, "Water? Boil it.", {"a": 1}, 1, 2)
    latest = revised(begun, ID, "Water? Filter it.", {"a": 2}, 1, 3)
    assert merged(begun, later) == merged(later, begun) == (later, None)
    assert merged(later, later) == (later, None)
    stays, beside = merged(later, latest)
    assert merged(latest, later) == (stays, beside)
    assert stays == latest
    assert beside is not None
    assert (beside.title, beside.content, beside.id != ID) == (later.title, later.content, True)


@pytest.mark.req("ATTACK-92")
def test_what_is_no_conversation_is_refused() -> None:
    begun = revised(None, ID, "Water?", {}, 1, 1)
    path = msgspec.structs.replace(begun, id="../../keys")
    long = msgspec.structs.replace(begun, history=["0" * 32] * (conversations.MAX_HISTORY + 1))
    for text in ("!", ids.b64(b"no zlib"), to_text(path), to_text(long)):
        assert refusal(lambda text=text: from_text(text)).code == "bad_request"
    assert from_text(to_text(begun)) == begun


@pytest.mark.req("CONV-6")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.sampled_from("sdx"))))
@example([("a", "a", "s"), ("a", "b", "x"), ("a", "a", "d"), ("b", "a", "d")])  # one revision, made twice
def test_any_order_of_exchange_ends_in_the_same(moves: list[tuple[str, str, str]]) -> None:
    """Nodes change, delete and exchange in any order; after two rounds of exchange all have the same."""
    with tempfile.TemporaryDirectory() as folder:
        nodes = {name: store(Path(folder) / name) for name in "abc"}
        texts = set()
        for number, (name, other, move) in enumerate(moves):
            at = nodes[name]
            found = at.find(ID)
            if move == "x":
                exchange(at, nodes[other])
            elif move == "d" and found is not None:
                at.delete(ID)
            elif move == "s" and (found is None or not found.deleted):
                texts.add(said(at, str(number), "" if found is None else found.revision).title)
        for _ in range(2):
            for one in nodes.values():
                for other_node in nodes.values():
                    exchange(one, other_node)
        first, *others = [sorted(at.all(), key=lambda one: one.id) for at in nodes.values()]
        assert all(one == first for one in others)
        assert {one.title for one in first if not one.deleted} <= texts


def exchange(one: ConversationStore, other: ConversationStore) -> None:
    """The one sends all that it has to the other."""
    for conversation in one.all():
        other.take_in(conversation)
