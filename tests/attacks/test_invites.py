"""Invites that were used, bent, taken back or led to another door; by the command that everyone has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hearthnet.core.errors import REFUSED, TIMED_OUT, USAGE
from hearthnet.trust.community import invites
from hearthnet.trust.keys import Identity
from tests.attacks.conftest import Victim
from tests.helpers.shell import Shell

NOT_ACCEPTED = "does not accept this invite: it was used, withdrawn or has expired"


@pytest.fixture
def newcomer(tmp_path: Path) -> Callable[[str], Shell]:
    """Empty homes by name."""
    return lambda name: Shell(tmp_path / name)


def _invite(victim: Victim, *more: str) -> str:
    return str(Shell(victim.home.path).json("invite", "create", "--json", *more)["invite"])


@pytest.mark.req("ATTACK-22")
def test_an_invite_lets_in_one_home(victim: Victim, newcomer: Callable[[str], Shell]) -> None:
    text = _invite(victim)
    first, second = newcomer("first"), newcomer("second")
    first.json("invite", "redeem", text, "--json")
    refused = second.run("invite", "redeem", text)
    assert refused.returncode == REFUSED, refused.stderr
    assert NOT_ACCEPTED in refused.stderr.splitlines()[-1], refused.stderr
    assert not (second.home / "community" / "roster.json").exists()


@pytest.mark.req("ATTACK-22")
def test_an_invite_that_was_taken_back_lets_in_nobody(
    victim: Victim, newcomer: Callable[[str], Shell]
) -> None:
    text, late = _invite(victim), newcomer("late")
    Shell(victim.home.path).json("invite", "withdraw", text, "--json")
    refused = late.run("invite", "redeem", text)
    assert refused.returncode == REFUSED, refused.stderr
    assert NOT_ACCEPTED in refused.stderr.splitlines()[-1], refused.stderr
    assert not (late.home / "community" / "roster.json").exists()


@pytest.mark.req("ATTACK-22")
@pytest.mark.parametrize(
    ("what", "code", "says"),
    [
        ("a letter", USAGE, "the invite is damaged; copy the whole text once more"),
        ("its key", REFUSED, NOT_ACCEPTED),
        ("its community", TIMED_OUT, "the node that made the invite"),
    ],
)
def test_an_invite_that_was_altered_lets_in_nobody(
    victim: Victim, newcomer: Callable[[str], Shell], what: str, code: int, says: str
) -> None:
    text, thief = _invite(victim), newcomer("thief")
    if what == "a letter":
        middle = len(text) // 2
        bent = text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :]
    else:
        other = Identity.generate()
        bent = _bent(text, what, other)
    refused = thief.run("invite", "redeem", bent)
    assert refused.returncode == code, refused.stderr
    assert says in refused.stderr.splitlines()[-1], refused.stderr
    assert not (thief.home / "community" / "roster.json").exists()


def _bent(text: str, what: str, other: Identity) -> str:
    """The invite with one member replaced and its check made good again, as one who knows the form would."""
    invite = invites.decode(text)
    field, value = {
        "its key": ("seed", other.to_text().split()[1]),
        "its community": ("community_id", other.node_id),
    }[what]
    return msgspec.structs.replace(invite, **{field: value}).encode()
