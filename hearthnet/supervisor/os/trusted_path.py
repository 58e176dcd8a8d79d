"""The check that nobody but the node's user and root can replace a path or what leads to it.

Settings name commands that the node runs, so whoever can replace them, their folder or a folder above it can
run a program as the node's user. Whoever can write to a folder in the home can put a client of the gateway
there, or a call that the node makes when it starts.

See: docs/security.md#the-folder-of-a-home.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hearthnet.core.errors import OTHER, HearthNetError
from hearthnet.core.home import Home

_LINKS: Final = 40
"""Maximum of symbolic links that are followed, as in the kernel."""


def check_trusted(home: Home) -> None:
    """Check that no other user can write to the home, a folder above it, or what lies in it, where it exists.

    Raises:
        HearthNetError: `unauthorized` with exit code 1, naming the path, who can replace it and the remedy.
    """
    _check_way(home.path)
    if home.path.is_dir():
        for path in sorted(home.path.iterdir()):
            _check_way(path)


def _check_way(path: Path) -> None:
    for step, is_end in _steps(path):
        _check(step, is_end=is_end)


def _steps(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each existing folder and link on the way to `path`, in the order of a lookup, then `path`.

    The second value is true for `path` itself, or what its last link leads to.
    """
    rest, place, links = list(path.parts[:0:-1]), Path(path.anchor), 0
    yield place, False
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        place = place.parent if part == ".." else place / part
        if not os.path.lexists(place):
            return
        if place.is_symlink():
            yield place, False
            links += 1
            if links > _LINKS:
                raise _refusal(place, "it is one of too many links", "name the folder itself")
            target = Path(os.readlink(place))
            place = Path(target.anchor) if target.is_absolute() else place.parent
            rest += target.parts[:0:-1] if target.is_absolute() else target.parts[::-1]
            continue
        yield place, not rest


def _check(path: Path, *, is_end: bool) -> None:
    found, own = path.lstat(), os.geteuid()
    if found.st_uid not in (0, own):
        raise _refusal(
            path, f"it belongs to {_user(found.st_uid)}", f"take it over: chown {_user(own)} {path}"
        )
    if stat.S_ISLNK(found.st_mode):
        return  # its mode means nothing: who can replace it can write to its folder
    if found.st_mode & stat.S_ISVTX and stat.S_ISDIR(found.st_mode) and not is_end:
        return  # such as /tmp: nobody can replace what belongs to another user
    if found.st_mode & stat.S_IWOTH:
        raise _refusal(path, "every user can write to it", f"chmod o-w {path}")
    if found.st_mode & stat.S_IWGRP and (_has_acl(path) or not _is_private_group(found.st_gid)):
        writer = "its access list" if _has_acl(path) else f"the group {_group(found.st_gid)}"
        raise _refusal(path, f"{writer} lets others write to it", f"chmod g-w {path}")


def _is_private_group(gid: int) -> bool:
    """Return whether the group is root's, or that of this user alone, as many systems make one for each."""
    if gid == 0:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _has_acl(path: Path) -> bool:
    """Return whether an access list says who may write, of which the mode shows the maximum only."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (AttributeError, OSError):  # a system or file system without such lists
        return False


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _refusal(path: Path, why: str, remedy: str) -> HearthNetError:
    return HearthNetError(
        "unauthorized",
        f"cannot trust {path}: {why}, so others could replace this node's settings and run "
        f"programs as {_user(os.geteuid())}; look at what lies there, then {remedy}, or name another folder "
        "with --home",
        details={"path": str(path), "rule": "writable_by_others"},
        exit_status=OTHER,
    )
