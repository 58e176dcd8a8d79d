"""What the first run makes, what later runs complete, and what is never written over."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import new_ulid, short_id
from hearthnet.core.times import now_ms
from hearthnet.supervisor.nats.home_setup import Prepared, make_folders, make_person, prepare
from hearthnet.trust.community import commands
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.keys import Identity

LINES: list[str] = []


def again(home: Home) -> Prepared:
    """A later run."""
    make_folders(home)
    return prepare(home, LINES.append)


@pytest.mark.req("UP-1")
def test_a_community_of_one(prepared: Prepared) -> None:
    roster = prepared.roster
    assert roster.level(prepared.identity.node_id) == "anchor"
    assert roster.community_id == Identity.from_text(prepared.home.community_key.read_text()).node_id
    assert roster.members[0].login == prepared.identity.login().public
    assert roster.members[0].display_name == prepared.config.display_name


@pytest.mark.req("UP-1")
def test_a_display_name_of_the_settings(place: Home) -> None:
    place.config_file.write_text('[node]\ndisplay_name = "kitchen"\n')
    prepared = again(place)
    assert prepared.config.display_name == prepared.roster.members[0].display_name == "kitchen"


@pytest.mark.req("UP-13")
def test_damaged_settings_are_found_before_anything_is_made(place: Home) -> None:
    place.config_file.write_text("[server\n")
    with pytest.raises(HearthNetError, match=r"hearthnet\.toml: line 1: "):
        again(place)
    assert list(place.keys.iterdir()) == []


@pytest.mark.req("UP-16")
@pytest.mark.parametrize(
    "lost",
    [
        "roster config_file",
        "roster community_key config_file",
        "roster community_key device_key",
        "config_file",
    ],
)
def test_a_half_made_home_is_completed(prepared: Prepared, lost: str) -> None:
    gone: list[Path] = [getattr(prepared.home, name) for name in lost.split()]
    for path in gone:
        path.unlink()
    places = (*prepared.home.keys.iterdir(), prepared.home.roster)
    kept = {path: path.read_bytes() for path in places if path.exists()}
    after = again(prepared.home)
    assert after.roster.level(after.identity.node_id) == "anchor"
    root = Identity.from_text(prepared.home.community_key.read_text())
    assert after.roster.community_id == root.node_id, "the community of the key that is there"
    assert all(path.exists() for path in gone)
    assert all(path.read_bytes() == data for path, data in kept.items())


@pytest.mark.req("UP-16")
def test_a_roster_without_its_key_is_a_loss_and_not_a_first_run(prepared: Prepared) -> None:
    prepared.home.device_key.unlink()
    with pytest.raises(
        HearthNetError, match=r"device\.key is missing, but there is .*put back a copy"
    ) as caught:
        again(prepared.home)
    assert caught.value.exit_status == 5
    assert not prepared.home.device_key.exists()


@pytest.mark.req("UP-13")
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"hearthnet-key-1 AAAA ed25519:x\n", b"one two three"])
@pytest.mark.parametrize("which", ["device_key", "roster"])
def test_a_damaged_file_is_named_and_left_alone(prepared: Prepared, content: bytes, which: str) -> None:
    path: Path = getattr(prepared.home, which)
    path.write_bytes(content)
    with pytest.raises(HearthNetError, match=str(path)) as caught:
        again(prepared.home)
    assert "; put back a copy" in caught.value.message
    assert "\n" not in caught.value.message
    assert path.read_bytes() == content


@pytest.mark.req("UP-13")
def test_a_roster_that_was_altered_is_refused(prepared: Prepared) -> None:
    path = prepared.home.roster
    path.write_bytes(path.read_bytes().replace(b"community of one", b"my").replace(b'"anchor"', b'"member"'))
    with pytest.raises(HearthNetError, match="not what its events say") as caught:
        again(prepared.home)
    assert caught.value.exit_status == 4


@pytest.mark.req("UP-13")
def test_a_roster_of_others_is_refused(prepared: Prepared) -> None:
    root, other = Identity.generate(), Identity.generate()
    theirs = rosters.create(root, rosters.member(other, "anchor", "other", 0), "theirs", 0)
    prepared.home.roster.write_bytes(rosters.encode(theirs))
    with pytest.raises(HearthNetError, match="does not have this node") as caught:
        again(prepared.home)
    assert caught.value.exit_status == 4


@pytest.mark.req("UP-54")
def test_a_node_that_was_put_out_is_told_so(prepared: Prepared) -> None:
    me, anchor, now = prepared.identity, Identity.generate(), now_ms()
    root = Identity.from_text(prepared.home.community_key.read_text())
    held = prepared.roster
    asking = commands.CommunityAuthor(held, me).invite(
        anchor, display_name="", expires_at=now + 60_000, now_ms=now
    )
    held = rosters.merge(held, [asking])
    out = commands.CommunityAuthor(held, root).revoke(me.node_id, "gone", client_id=new_ulid(), now_ms=now)
    prepared.home.roster.write_bytes(rosters.encode(rosters.merge(held, [out])))
    with pytest.raises(
        HearthNetError, match=r"this node was put out of the community in .*invite redeem"
    ) as caught:
        again(prepared.home)
    assert caught.value.code == "revoked"
    assert caught.value.exit_status == 4


@pytest.mark.req("UP-17")
def test_a_key_that_others_can_read_is_refused(prepared: Prepared) -> None:
    prepared.home.device_key.chmod(0o644)
    with pytest.raises(
        HearthNetError, match=r"can be read by others; run: chmod 600 .*device\.key"
    ) as caught:
        again(prepared.home)
    assert caught.value.exit_status == 4


@pytest.mark.req("UP-17")
def test_folders_with_secrets_are_closed_to_others(prepared: Prepared) -> None:
    prepared.home.keys.chmod(0o755)
    again(prepared.home)
    assert prepared.home.keys.stat().st_mode & 0o777 == 0o700


@pytest.mark.req("PERSON-8")
def test_keys_of_a_person_are_made_once_and_for_the_owner_alone(prepared: Prepared) -> None:
    lines: list[str] = []
    home = prepared.home
    for _ in range(2):
        make_person(prepared, lines.append)
    recovery = Identity.from_text(home.recovery_key.read_text())
    assert lines == [f"new person {short_id(recovery.node_id)}; keep a copy of {home.recovery_key} elsewhere"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home.recovery_key, home.person_key)} == {0o600}
    home.recovery_key.unlink()
    make_person(prepared, lines.append)
    assert not home.recovery_key.exists()
