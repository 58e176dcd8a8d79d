"""Which names a home may give itself, and how names that were given are shown."""

from __future__ import annotations

import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community.names import MAX_LENGTH, RESERVED, check_name, shown_names, usable
from hearthnet.trust.keys import Identity

pytestmark = pytest.mark.req("ATTACK-35")
ANNA, BERTA, CARLA = (Identity(bytes([number]) * 32).node_id for number in (1, 2, 3))
GOOD = ["anna", "Küche", "Mei's home", "日本", "home 2", "Emma & Ben", "x" * MAX_LENGTH]
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
        *((word, "word for a role") for word in RESERVED),
    ],
)
def test_another_name_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(HearthNetError, match=reason) as caught:
        check_name(name)
    assert (caught.value.code, caught.value.details["rule"]) == ("bad_request", "name")
    made = usable(name, ANNA)
    check_name(made)
    assert ids.short_id(ANNA).removeprefix(ids.PREFIX) in made


def test_a_later_name_that_looks_the_same_is_shown_with_its_id() -> None:
    shown = shown_names([(ANNA, "anna"), (BERTA, CYRILLIC), (CARLA, "Anna")])
    assert shown == {
        ANNA: "anna",
        BERTA: f"{CYRILLIC} ({ids.short_id(BERTA)})",
        CARLA: f"Anna ({ids.short_id(CARLA)})",
    }


def test_a_name_of_before_is_shown_without_what_misleads() -> None:
    shown = shown_names([(ANNA, "  an\u202ena\x1b "), (BERTA, "this node"), (CARLA, "\u200b")])
    assert shown == {ANNA: "anna", BERTA: ids.short_id(BERTA), CARLA: ids.short_id(CARLA)}
