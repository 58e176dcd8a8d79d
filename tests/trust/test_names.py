"""Which names a home may give itself, and how names that were given are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hearthnet import gateway
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community.names import MAX_LENGTH, RESERVED, ROLES, check_name, shown_names, usable
from hearthnet.trust.keys import Identity

pytestmark = pytest.mark.req("ATTACK-35")
ANNA, BERTA, CARLA = (Identity(bytes([number]) * 32).node_id for number in (1, 2, 3))
HINDI = "\u0915\u0940\u0930\u094d\u0924\u093f"
GOOD = ["anna", "Küche", "Mei's home", "Mathis' home", "日本", HINDI, "\U0001f3e0", "home 2", "Emma & Ben"]
GOOD.append("x" * MAX_LENGTH)
ROLE_LIKE = ["th1s node", "this-node", "(this node)", "this node.", "thisnode", "At this home: Hana", "*"]
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
        *((word, "word for a role") for word in (*RESERVED, *ROLES, *ROLE_LIKE)),
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
