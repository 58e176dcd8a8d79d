"""The upstream home: the server that this home links to, and its certificate.

It is stored in `community/upstream.json`, written when an invite is redeemed. A home without this file is
on its own, or others link to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.supervisor.nats import address
from hearthnet.supervisor.nats.server_config import LeafRemote, login_line
from hearthnet.supervisor.os.atomic_files import file_errors, write_whole
from hearthnet.trust.keys import Login

_LOGIN: Final = "upstream.login"
_TRUSTED: Final = "upstream.pem"


class Upstream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stored values.

    `address` is `host:port`; `fingerprint` (of the server's key) and `certificate` (PEM) are both empty on
    loopback only.
    """

    address: str
    fingerprint: str = ""
    certificate: str = ""


def load_upstream(home: Home) -> Upstream | None:
    """Return the home that this one links to, None where there is none.

    Raises:
        HearthNetError: `bad_request` for a damaged file.
    """
    try:
        data = home.upstream.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(home.upstream, error.strerror or "cannot be read") from error
    try:
        found = msgspec.json.decode(data, type=Upstream)
        address.parse(found.address)
    except (msgspec.DecodeError, HearthNetError) as error:
        raise _damaged(home.upstream, str(error)) from error
    return found


def save_upstream(home: Home, upstream: Upstream) -> None:
    """Write the file atomically."""
    with file_errors(home.upstream):
        write_whole(home.upstream, msgspec.json.format(msgspec.json.encode(upstream), indent=1) + b"\n")


def remote(upstream: Upstream, login: Login, folder: Path) -> LeafRemote:
    """Return the settings of the link; write the files that they name into `folder`.

    Raises:
        HearthNetError: `bad_request` if the address is beyond loopback and there is no certificate.
    """
    trusted = folder / _TRUSTED if upstream.certificate else None
    settings = LeafRemote(address.parse(upstream.address), _LOGIN, trusted)
    with file_errors(folder):
        write_whole(folder / _LOGIN, login_line(login))
        if trusted is not None:
            write_whole(trusted, upstream.certificate.encode("utf-8"))
    return settings


def _damaged(path: Path, reason: str) -> HearthNetError:
    return HearthNetError(
        "bad_request",
        f"{path} is damaged ({reason}); put back a copy, or move it away and redeem a new invite",
        details={"path": str(path)},
    )
