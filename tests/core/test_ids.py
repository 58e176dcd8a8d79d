"""Ids and their forms.

See: docs/protocol/identity.md#text-forms.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import (
    b64,
    from_token_form,
    is_ulid,
    new_instance,
    new_ulid,
    node_id,
    public_key,
    short_id,
    subject_token,
    token_form,
    unb64,
)

KEY = bytes(range(32))
LAST_MILLISECOND = 2**48 - 1
_FORKING = """
import os
from hearthnet.core.ids import new_ulid

new_ulid(1)
reading, writing = os.pipe()
child = os.fork()
drawn = " ".join(new_ulid(1) for _ in range(100))
if child == 0:
    os.write(writing, drawn.encode())
    os._exit(0)
os.waitpid(child, 0)
print(drawn)
print(os.read(reading, 10_000).decode())
"""


@pytest.mark.req("WIRE-2")
@given(st.integers(0, LAST_MILLISECOND), st.integers(0, LAST_MILLISECOND))
def test_ulids_sort_by_their_time(one: int, other: int) -> None:
    first, second = new_ulid(one), new_ulid(other)
    assert is_ulid(first)
    assert is_ulid(second)
    if one != other:
        assert (first < second) == (one < other)


def test_the_time_of_a_ulid_is_where_the_specification_puts_it() -> None:
    assert new_ulid(1469922850259).startswith("01ARZ3NDEK")
    assert new_ulid(0).startswith("0000000000")
    assert new_ulid(LAST_MILLISECOND).startswith("7ZZZZZZZZZ")


def test_ulids_of_one_moment_differ() -> None:
    assert len({new_ulid(1) for _ in range(1000)}) == 1000


def test_a_forked_child_draws_other_ulids_than_its_parent() -> None:
    """In a process of its own, since one with threads should not be forked."""
    done = subprocess.run([sys.executable, "-c", _FORKING], capture_output=True, text=True, check=True)
    parent, child = (set(line.split()) for line in done.stdout.splitlines())
    assert (len(parent), len(child)) == (100, 100)
    assert not parent & child


@pytest.mark.req("WIRE-2")
@pytest.mark.parametrize(
    "text", ["", "8" + "Z" * 25, "0" * 25, "0" * 27, "I" * 26, "01arz3ndektsv4rrffq69g5fav"]
)
def test_what_is_no_ulid_is_seen(text: str) -> None:
    assert not is_ulid(text)


def test_an_instance_is_eight_small_letters_and_digits() -> None:
    names = [new_instance() for _ in range(100)]
    assert all(re.fullmatch("[a-z0-9]{8}", name) for name in names)
    assert len(set(names)) == 100


@pytest.mark.req("WIRE-1")
@given(st.binary(min_size=32, max_size=32))
def test_a_node_id_and_its_forms_lead_back_to_the_key(key: bytes) -> None:
    node = node_id(key)
    assert public_key(node) == key
    assert from_token_form(token_form(node)) == node
    assert len(token_form(node)) == 43
    assert not set(token_form(node)) & set(".*> ")


def test_the_form_for_people_is_four_groups_of_four() -> None:
    assert short_id(node_id(KEY)) == "ed25519:AAAQ-EAYE-AUDA-OCAJ"


@pytest.mark.req("WIRE-1")
@pytest.mark.parametrize(
    "text",
    ["", "ed25519:", b64(KEY), "ed25519:" + b64(KEY[:31]), "ed25519:" + b64(KEY) + "=", "ed448:" + b64(KEY)],
)
def test_what_is_no_node_id_is_refused(text: str) -> None:
    with pytest.raises(HearthNetError, match="is not a node id") as caught:
        public_key(text)
    assert caught.value.code == "bad_request"


@given(st.binary(max_size=100))
def test_base64url_leads_back_to_the_bytes(data: bytes) -> None:
    assert unb64(b64(data)) == data


@pytest.mark.req("WIRE-1")
@pytest.mark.parametrize("text", ["a", "ä", "a b", "YQ==YQ", "YQ==", "YQ=", "YR", "YQ\n", "+/+/", "\ud800"])
def test_what_is_not_base64url_is_refused(text: str) -> None:
    with pytest.raises(HearthNetError, match="not base64url") as caught:
        unb64(text)
    assert caught.value.code == "bad_request"


@pytest.mark.req("WIRE-1")
@given(st.binary(min_size=32, max_size=32))
def test_a_key_has_one_id(key: bytes) -> None:
    """The last character carries four bits and two stray ones: three more texts would mean the same key."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    node = node_id(key)
    accepted = []
    for last in alphabet:
        with contextlib.suppress(HearthNetError):
            public_key(node[:-1] + last)
            accepted.append(last)
    assert node[-1] in accepted
    assert len(accepted) == 16
    assert len({public_key(node[:-1] + last) for last in accepted}) == 16


@pytest.mark.req("WIRE-1")
def test_a_guest_has_a_token_of_its_own_in_subjects() -> None:
    node = node_id(bytes(31) + b"\1")
    assert subject_token(node) == token_form(node)
    other = node_id(bytes(31) + b"\2")
    names = [f"{node}/a.b", f"{node}/a.c", f"{node}/a", f"{other}/a"]
    guests = [subject_token(name) for name in names]
    assert len({*guests, token_form(node), token_form(other)}) == 6
    assert [subject_token(name) for name in names] == guests
    assert all(re.fullmatch("[A-Za-z0-9_-]{43}", token) for token in guests)
    with pytest.raises(HearthNetError, match="'nobody' is not a node id"):
        subject_token("nobody")
