"""Homes that other users can replace or write to: the node refuses to start and says which path it is."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.supervisor.nats.home_setup import make_folders
from hearthnet.supervisor.os.trusted_path import check_trusted
from tests.helpers.leaving import leave_out
from tests.helpers.shell import Shell

NOBODY = 65_534
GROUP = 4_242
SETTINGS = '[server]\nport = 0\n[gateway]\nenabled = false\n[services]\nenabled = ["market"]\n'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with settings, in a folder of its own, that nobody else can write to."""
    home = Home(tmp_path / "street" / "home")
    home.path.mkdir(parents=True, mode=0o755)
    home.config_file.write_text(SETTINGS)
    home.config_file.chmod(0o644)
    return home


def refusal(home: Home) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        check_trusted(home)
    assert (caught.value.code, caught.value.exit_status) == ("unauthorized", 1)
    return caught.value


@pytest.mark.req("UP-55")
@pytest.mark.parametrize(
    ("which", "mode"),
    [("parent", 0o777), ("home", 0o777), ("home", 0o1777), ("settings", 0o666)],
    ids=["parent", "home", "home with sticky bit", "settings"],
)
def test_home_that_every_user_can_write_to_is_refused(home: Home, which: str, mode: int) -> None:
    check_trusted(home)
    path = {"parent": home.path.parent, "home": home.path, "settings": home.config_file}[which]
    path.chmod(mode)
    error = refusal(home)
    assert error.details == {"path": str(path), "rule": "writable_by_others"}
    assert error.message.startswith(f"cannot trust {path}: every user can write to it")
    assert f"then chmod o-w {path}, or name another folder" in error.message
    path.chmod(mode & ~0o002)
    check_trusted(home)


@pytest.mark.req("UP-55")
def test_refused_node_makes_nothing_and_says_so_in_one_line(home: Home) -> None:
    home.path.chmod(0o777)
    done = Shell(home.path).run("up")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"hearthnet: cannot trust {home.path}: every user can write to it")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in home.path.iterdir()] == ["hearthnet.toml"]


@pytest.mark.req("UP-55", "ATTACK-30")
@pytest.mark.parametrize("name", ["clients", "outbox", "keys", "grants.json"])
def test_what_lies_in_the_home_and_every_user_can_write_to_is_refused(home: Home, name: str) -> None:
    """Such as the folder of the gateway's clients, or of the calls that wait for the node."""
    path = home.path / name
    path.touch() if "." in name else path.mkdir()
    path.chmod(0o777)
    done = Shell(home.path).run("up")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"hearthnet: cannot trust {path}: every user can write to it")
    path.chmod(0o755)
    check_trusted(home)


@pytest.mark.req("UP-55")
def test_sticky_folder_above_the_home_is_no_danger(home: Home) -> None:
    """Such as /tmp: nobody can replace what belongs to another user there."""
    home.path.parent.chmod(0o1777)
    check_trusted(home)


@pytest.mark.req("UP-55")
def test_home_that_is_not_there_yet_is_held_to_the_folders_above_it(tmp_path: Path) -> None:
    street = tmp_path / "street"
    street.mkdir()
    street.chmod(0o777)
    home = Home(street / "new" / "home")
    with pytest.raises(HearthNetError, match=f"cannot trust {street}: every user"):
        make_folders(home)
    assert list(street.iterdir()) == []


@pytest.mark.req("UP-55")
def test_links_are_followed_as_a_lookup_does(home: Home, tmp_path: Path) -> None:
    open_folder, direct = tmp_path / "open", tmp_path / "direct"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    (open_folder / "link").symlink_to(home.path)
    direct.symlink_to(os.path.relpath(home.path, tmp_path))
    check_trusted(Home(direct))
    # Whoever can write to the folder of the link can lead it elsewhere.
    assert refusal(Home(open_folder / "link")).details["path"] == str(open_folder)
    direct.unlink()
    direct.symlink_to(open_folder / "link")
    assert refusal(Home(direct)).details["path"] == str(open_folder)
    home.config_file.unlink()
    (open_folder / "settings").write_text(SETTINGS)
    home.config_file.symlink_to(open_folder / "settings")
    assert refusal(home).details["path"] == str(open_folder)


@pytest.mark.req("UP-55")
def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "it is one of too many links" in refusal(Home(tmp_path / "a")).message


@pytest.mark.req("UP-55")
def test_folder_of_another_user_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(home.path, NOBODY, -1)
        owner = pwd.getpwuid(NOBODY).pw_name
    else:
        own = os.geteuid()
        owner = pwd.getpwuid(own).pw_name
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    error = refusal(home)
    assert f"it belongs to {owner}" in error.message


@pytest.mark.req("UP-55")
@pytest.mark.parametrize(
    ("group", "members", "primary", "trusted"),
    [
        ("ada", [], True, True),
        ("ada", ["ada"], True, True),
        ("ada", ["bo"], True, False),
        ("family", [], True, False),
        ("ada", [], False, False),
    ],
)
def test_group_may_write_if_it_is_this_user_alone(
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    members: list[str],
    primary: bool,
    trusted: bool,
) -> None:
    if os.geteuid() == 0:
        os.chown(home.path, -1, GROUP)
    gid = home.path.stat().st_gid
    ada = pwd.getpwuid(os.geteuid())
    ada = pwd.struct_passwd(("ada", "x", ada.pw_uid, gid if primary else gid + 1, *ada[4:]))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: ada)
    monkeypatch.setattr(grp, "getgrgid", lambda number: grp.struct_group((group, "x", number, members)))
    home.path.chmod(0o770)
    if trusted:
        check_trusted(home)
    else:
        assert f"the group {group} lets others write to it" in refusal(home).message


@pytest.mark.req("UP-55", "ATTACK-30")
def test_another_user_who_replaced_the_settings_runs_nothing(shared_folder: Path) -> None:
    """The folder above the home is open to all: `nobody` moves the home away and puts its own there."""
    home, marker = shared_folder / "home", shared_folder / "marker"
    home.mkdir(mode=0o700)
    (home / "hearthnet.toml").write_text(SETTINGS)
    command = f'["{sys.executable}", "-c", "open({str(marker)!r}, \'w\')"]'
    settings = f'{SETTINGS}\n[[mcp.servers]]\nname = "mine"\ncommand = {command}\n'
    replace = 'mv home away && mkdir -m 700 home && printf %s "$1" > home/hearthnet.toml'
    subprocess.run(
        ["/bin/sh", "-c", replace, "sh", settings.replace('"market"', '"mcp"')],
        cwd=shared_folder,
        user=NOBODY,
        check=True,
    )
    assert (home / "hearthnet.toml").stat().st_uid == NOBODY
    done = Shell(home).run("up")
    assert done.returncode == 1
    assert f"cannot trust {shared_folder}: every user can write to it" in done.stderr
    assert sorted(path.name for path in home.iterdir()) == ["hearthnet.toml"]
    assert not marker.exists()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user can reach and write to."""
    if os.geteuid() != 0:
        leave_out("a process of another user takes root")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)
