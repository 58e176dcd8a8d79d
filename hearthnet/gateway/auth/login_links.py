"""One-time links: a code that adds the page which opens it on this computer as a client.

Each is a file named by the hash of its code. The request that removes the file has used the code, so each
code is used once, even by concurrent requests and after a crash.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from hearthnet.bus.session.keyring import load_identity
from hearthnet.core import ids
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.client_store import hash_of
from hearthnet.trust.authorization.token import OWNER

LIFE_MS: Final = 600_000
_FILE: Final = re.compile("[0-9a-f]{64}")
_CODE_BYTES: Final = 24
ONLY_HERE: Final = (
    "this link opens on the node's own computer only; for a phone or another computer print one with: "
    "hearthnet device add --phone"
)
_NO_LINK: Final = "this link is not, or no longer, valid; print a new one with: hearthnet link"


class Link(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The effect of a code: a client of the guest `principal`, until `expires_at` (Unix ms).

    `is_for_elsewhere`: it opens on another computer, too, where the gateway serves TLS.
    """

    principal: str
    expires_at: Count
    is_for_elsewhere: bool = False


class LinkBook:
    """The unused links of one home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._folder = home.links

    def link(self, url: str, principal: str = OWNER, *, is_for_elsewhere: bool = False) -> str:
        """Return the address that makes one client, for a person to open; as `make`.

        Code and node follow the #, a part that no browser sends to a server. The page signs for the node of
        the link, since who answers at the address could name another one.
        """
        code = self.make(principal, is_for_elsewhere=is_for_elsewhere)
        node = load_identity(self._home.device_key).node_id
        return f"{url}/#code={code}{node.removeprefix(ids.PREFIX)}"

    def make(self, principal: str = OWNER, life_ms: int = LIFE_MS, *, is_for_elsewhere: bool = False) -> str:
        """Return a new code (32 characters) for one client, valid for ten minutes. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.sweep()
        code = ids.b64(secrets.token_bytes(_CODE_BYTES))
        path = self._folder / hash_of(code)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(Link(principal, now_ms() + life_ms, is_for_elsewhere)))
        return code

    def use(self, code: str, *, is_here: bool = True, check: Callable[[Link], None] | None = None) -> Link:
        """Use up a code and return its link.

        A link for this computer alone is not used up elsewhere, nor is one that `check` refuses.

        Raises:
            HearthNetError: `unauthorized` if the code is unknown, used, expired, or for this computer alone;
                any error of `check`.
        """
        path = self._folder / hash_of(code)
        try:
            link = msgspec.json.decode(path.read_bytes(), type=Link)
            if not (is_here or link.is_for_elsewhere):
                raise HearthNetError("unauthorized", ONLY_HERE)
            if check is not None:
                check(link)
            path.unlink()
        except (OSError, msgspec.DecodeError) as error:
            raise HearthNetError("unauthorized", _NO_LINK) from error
        if link.expires_at <= now_ms():
            raise HearthNetError("unauthorized", _NO_LINK)
        return link

    def sweep(self) -> None:
        """Remove expired links and unreadable files."""
        for path in self._folder.iterdir():
            if not _FILE.fullmatch(path.name):
                continue
            try:
                over = msgspec.json.decode(path.read_bytes(), type=Link).expires_at <= now_ms()
            except (OSError, msgspec.DecodeError):
                over = True
            if over:
                path.unlink(missing_ok=True)
