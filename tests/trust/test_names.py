"""Which names a home may give itself, and how names that were given are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hearthnet import gateway
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.visible import MAX_MARKS
from hearthnet.trust.community.names import (
    MAX_LENGTH,
    RESERVED,
    ROLES,
    check_name,
    look_alike,
    nodes_called,
    shown_names,
    usable,
)
from hearthnet.trust.keys import Identity

pytestmark = pytest.mark.req("ATTACK-35")
ANNA, BERTA, CARLA = (Identity(bytes([number]) * 32).node_id for number in (1, 2, 3))
HINDI = "\u0915\u0940\u0930\u094d\u0924\u093f"
GOOD = ["anna", "Küche", "Mei's home", "Mathis' home", "日本", HINDI, "\U0001f3e0", "home 2", "Emma & Ben"]
GOOD += ["x" * MAX_LENGTH, "\U0001f3e0 \U0001f3e0"]
GOOD += [
    "Owen",
    "Brown",
    "Owner's Rest",
    "Self Storage",
    "Downtown",
    "My nodes",
    "Lokal am Markt",
    "Eigenheim",
]
ROLE_LIKE = ["th1s node", "this-node", "(this node)", "this node.", "thisnode", "At this home: Hana", "*"]
OWN_LIKE = [
    "Own",
    "0wn",
    "Self",
    "The Owner",
    "My node",
    "My-Node",
    "Local node",
    "mein Knoten",
    "Lokaler Knoten",
]
CYRILLIC = "\u0430nn\u0430"


@pytest.mark.parametrize("name", GOOD)
def test_a_usual_name_is_taken_and_shown_as_it_is(name: str) -> None:
    check_name(name)
    assert usable(name, ANNA) == name
    assert shown_names([(ANNA, name)]) == {ANNA: name}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "0 characters"),
        ("x" * (MAX_LENGTH + 1), "65 characters"),
        ("an\u202ena", "nobody sees"),
        ("an\u200bna", "nobody sees"),
        ("anna\x1b[2K", "nobody sees"),
        ("anna\ufe0f", "nobody sees"),
        ("\u3164", "nobody sees"),
        (" anna", "blank"),
        ("anna  b", "blank"),
        ("This Node", "word for a role"),
        ("th\u0456s n\u043ede", "word for a role"),
        ("\uff45\uff44\uff12\uff15\uff15\uff11\uff19:AAAA", "like an id"),
        ("\u0301anna", "mark without a letter"),
        ("a" + "\u0301" * 6, "mark without a letter, or more than 4"),
        ("Hana (ed25519:ABCD-EFGH-IJKL-MNOP)", "like an id"),
        ("e\u1e0d 25519", "like an id"),
        ("ABCD-EFGH-IJKL-MNOP", "like an id"),
        *((word, "word for a role") for word in (*RESERVED, *ROLES, *ROLE_LIKE, *OWN_LIKE)),
    ],
)
def test_another_name_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(HearthNetError, match=reason) as caught:
        check_name(name)
    assert (caught.value.code, caught.value.details["rule"]) == ("bad_request", "name")
    made = usable(name, ANNA)
    check_name(made)
    assert ids.short_id(ANNA).removeprefix(ids.PREFIX).startswith(made.removeprefix("home "))


@pytest.mark.parametrize("other", [CYRILLIC, "Anna", "Anna.", "a n n a", "\u00e1nna", "Anna \u2713", "4nn4"])
def test_all_names_that_look_the_same_are_shown_with_their_ids(other: str) -> None:
    named = [(ANNA, "anna"), (BERTA, other), (CARLA, "Carla")]
    shown = shown_names(named)
    assert shown == {
        ANNA: f"anna ({ids.short_id(ANNA)})",
        BERTA: f"{other} ({ids.short_id(BERTA)})",
        CARLA: "Carla",
    }
    assert shown_names(reversed(named)) == shown, "who was first is what events claim"


@pytest.mark.parametrize(
    ("name", "other"),
    [("Emma", "Emrna"), ("Walter", "VValter"), ("Dora", "Clora"), ("Zoe", "2oe"), ("Inge", "In9e")],
)
def test_letters_that_are_read_as_others_make_names_alike(name: str, other: str) -> None:
    assert look_alike(name, other)
    assert look_alike(other, name)
    assert not look_alike(name, f"{other}a")


def test_names_that_differ_by_a_vowel_sign_are_shown_as_they_are() -> None:
    names = {ANNA: HINDI, BERTA: HINDI.replace("\u0940", "\u093e", 1)}
    assert shown_names(names.items()) == names


def test_long_names_that_differ_at_the_end_are_shown_with_their_ids() -> None:
    names = [f"The family of the house at the market {number}" for number in (4, 5)]
    shown = shown_names(zip((ANNA, BERTA), names, strict=True))
    assert shown == {node: f"{name} ({ids.short_id(node)})" for node, name in zip(shown, names, strict=True)}


@pytest.mark.parametrize("key", ["confirm.provider", "mesh.here"])
def test_no_name_is_a_word_of_the_page_for_a_role(key: str) -> None:
    page = (Path(gateway.__file__).parent / "page/static/js/texts.js").read_text()
    lines = re.findall(rf'"{re.escape(key)}[a-z.]*": \["(.+)", "(.+)"\]', page)
    said = [text for pair in lines for text in pair]
    assert len(lines) == (4 if key == "confirm.provider" else 1)
    for text in said:
        with pytest.raises(HearthNetError, match="word for a role"):
            check_name(text)


def test_a_name_of_before_is_shown_without_what_misleads() -> None:
    shown = shown_names([(ANNA, "  an\u202ena\x1b "), (BERTA, "this node"), (CARLA, "\u200b")])
    assert shown == {ANNA: "anna", BERTA: ids.short_id(BERTA), CARLA: ids.short_id(CARLA)}
    piled = "o" + "\u0301" * (MAX_MARKS + 2) + "tto"
    shown = shown_names([(ANNA, "an\tna"), (BERTA, "b \u200b b"), (CARLA, piled)])
    assert shown == {ANNA: "an na", BERTA: "b b", CARLA: piled.replace("\u0301\u0301", "", 1)}


@pytest.mark.req("GATHER-4")
def test_a_home_is_found_by_its_id_its_name_and_never_by_a_guess() -> None:
    shown = shown_names([(ANNA, "Kitchen"), (BERTA, "Garden"), (CARLA, "garden shed")])
    short = ids.short_id(ANNA)
    for text in ("Kitchen", " kitchen ", ANNA, short, short.lower(), short.removeprefix(ids.PREFIX)):
        assert nodes_called(text, shown) == [ANNA], text
    assert nodes_called("garden", shown) == [BERTA]
    assert nodes_called("gard", shown) == nodes_called("", shown) == nodes_called("  ", shown) == []


@pytest.mark.req("GATHER-4", "ATTACK-111")
def test_names_that_look_alike_or_are_ids_stand_for_all_candidates() -> None:
    shown = shown_names([(ANNA, "Kitchen"), (BERTA, "K1tchen"), (CARLA, "Garden")])
    for text in ("Kitchen", "K1tchen", "kitchen"):
        assert nodes_called(text, shown) == [ANNA, BERTA], text
    # Two that differ in case alone would be shown with ids; a map of other forms may have both.
    assert nodes_called("home", {ANNA: "Home", BERTA: "HOME"}) == [ANNA, BERTA]
    assert nodes_called(ids.short_id(ANNA), {ANNA: "Kitchen", BERTA: ids.short_id(ANNA)}) == [ANNA]
