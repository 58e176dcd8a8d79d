"""Members by what people call them."""

from __future__ import annotations

import pytest

from hearthnet.cli.input.member_lookup import KnownMember, display_name, resolve_member
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community.names import shown_names
from hearthnet.trust.keys import Identity

KITCHEN, ATTIC, OTHER = (Identity(bytes([number] * 32)).node_id for number in (1, 2, 3))
PEOPLE = [KnownMember(KITCHEN, "Kitchen"), KnownMember(ATTIC, "Attic"), KnownMember(OTHER, "kitchen two")]


@pytest.mark.req("CLI-14")
@pytest.mark.parametrize(
    "text",
    [
        KITCHEN,
        ids.short_id(KITCHEN),
        ids.short_id(KITCHEN).removeprefix("ed25519:"),
        ids.short_id(KITCHEN).lower(),
        "Kitchen",
        "kitchen",
        " KITCHEN ",
    ],
)
def test_a_node_is_found_by_id_short_id_and_name(text: str) -> None:
    assert resolve_member(text, PEOPLE).node_id == KITCHEN


@pytest.mark.req("CLI-14")
def test_a_name_that_two_have_is_answered_with_their_ids() -> None:
    twin = Identity(bytes([4] * 32)).node_id
    twins = [*PEOPLE, KnownMember(twin, "Attic")]
    with pytest.raises(HearthNetError, match="2 members are called 'Attic'") as caught:
        resolve_member("Attic", twins)
    assert caught.value.code == "bad_request"
    assert f": {ids.short_id(ATTIC)}, {ids.short_id(twin)}; name one by its id" in caught.value.message
    assert caught.value.alt == [ATTIC, twin]


@pytest.mark.req("CLI-14")
def test_the_exact_name_comes_before_one_in_other_letters() -> None:
    people = [KnownMember(KITCHEN, "Attic"), KnownMember(ATTIC, "ATTIC")]
    assert resolve_member("ATTIC", people).node_id == ATTIC
    with pytest.raises(HearthNetError, match="2 members"):
        resolve_member("attic", people)


@pytest.mark.req("CLI-14")
def test_an_id_means_its_node_whatever_somebody_is_called() -> None:
    people = [KnownMember(KITCHEN, ids.short_id(ATTIC)), KnownMember(ATTIC, "Attic")]
    assert resolve_member(ids.short_id(ATTIC), people).node_id == ATTIC


@pytest.mark.req("CLI-14")
@pytest.mark.parametrize(
    ("text", "said"), [("Kitchn", "did you mean Kitchen"), ("zzz", "there is Attic, Kitchen")]
)
def test_an_unknown_name_is_answered_with_the_nearest(text: str, said: str) -> None:
    with pytest.raises(HearthNetError, match=said) as caught:
        resolve_member(text, PEOPLE)
    assert caught.value.code == "not_found"
    with pytest.raises(HearthNetError, match="there is nobody"):
        resolve_member(text, [])


@pytest.mark.req("CLI-3", "CLI-14")
def test_a_name_is_shown_harmless_and_found_as_shown() -> None:
    name = "Kit\x1b[2Jchen\u202e" + "x" * 100
    shown = display_name(name)
    assert shown.startswith("Kit\\x1b[2Jchen\\u202e")
    assert len(shown) == 40
    assert resolve_member(shown, [KnownMember(KITCHEN, name)]).node_id == KITCHEN
    assert display_name("  ") == "-"
    assert str(KnownMember(KITCHEN, "Kitchen")) == f"Kitchen ({ids.short_id(KITCHEN)})"


@pytest.mark.req("ATTACK-35", "CLI-14")
def test_a_name_that_others_look_like_is_ambiguous_for_all() -> None:
    shown = shown_names([(KITCHEN, "Kitchen"), (ATTIC, "Kitch\u0435n")])
    known = [KnownMember(node, name) for node, name in shown.items()]
    for text in ("Kitchen", "kitchen", "Kitch\u0435n"):
        with pytest.raises(HearthNetError, match="2 members are called") as caught:
            resolve_member(text, known)
        assert sorted(caught.value.alt) == sorted([KITCHEN, ATTIC])
    assert resolve_member(str(known[0]), known).node_id == KITCHEN
    assert str(known[0]) == f"Kitchen ({ids.short_id(KITCHEN)})"
    long = shown_names([(KITCHEN, "x" * 64), (ATTIC, "x" * 63)])[ATTIC]
    assert display_name(long) == f"{'x' * 37}... ({ids.short_id(ATTIC)})"
