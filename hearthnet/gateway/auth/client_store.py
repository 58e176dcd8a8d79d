"""The clients of the gateway: one file each in the home, so that removal is immediate.

A secret is shown to its client once; the file holds only its hash.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from hearthnet.core import ids
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.home_persons import HomePersons
from hearthnet.trust.authorization.token import Scope, check_principal

MOST_CLIENTS: Final = 500
LIFE_MS: Final = 90 * 86_400_000
SECRET_PREFIX: Final = "hnk_"
_ID: Final = re.compile("[a-z0-9]{8}")
_SECRET_BYTES: Final = 32
_LONGEST_NAME: Final = 80
_MAX_CACHED: Final = 256
_NOT_KNOWN: Final = "this client is not known here; ask the owner of this node for a new link or key"


class StoredClient(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client; times are Unix milliseconds.

    `secret` is a hash. A `scope` without capabilities means all that a guest may call. `principal` is the
    guest's name at this node, `key` its own public key or empty.
    """

    id: str
    name: str
    secret: str
    principal: str
    key: str = ""
    scope: Scope = Scope(())
    made_by: Literal["link", "owner"] = "owner"
    created_at: Count
    expires_at: Count


class ClientStore:
    """The clients of the gateway of one home."""

    def __init__(self, home: Home) -> None:
        self._folder = home.clients
        self.persons = HomePersons(home)

    def add(
        self,
        name: str,
        principal: str = "",
        *,
        key: str = "",
        scope: Scope | None = None,
        made_by: Literal["link", "owner"] = "owner",
        life_ms: int = LIFE_MS,
        check: Callable[[StoredClient], None] | None = None,
    ) -> tuple[StoredClient, str]:
        """Add a client; return it with its secret (43 characters), which is stored nowhere.

        Without a `principal` the client is a guest of its own. `check` may refuse the entry before it is
        written.

        Raises:
            HearthNetError: `bad_request` for a name that cannot be displayed and an invalid principal or key;
                `capacity_exceeded` for more than `MOST_CLIENTS`; any error of `check`.
        """
        check_client(name, key)
        client = ids.new_instance()
        principal = principal or f"client-{client}"
        check_principal(principal)
        if len(self.ids()) >= MOST_CLIENTS:
            raise HearthNetError(
                "capacity_exceeded", f"there are {MOST_CLIENTS} clients; remove one: hearthnet clients"
            )
        now, secret = now_ms(), ids.b64(secrets.token_bytes(_SECRET_BYTES))
        entry = StoredClient(
            id=client,
            name=name,
            secret=hash_of(secret),
            principal=principal,
            key=key,
            scope=scope or Scope(()),
            made_by=made_by,
            created_at=now,
            expires_at=now + life_ms,
        )
        if check is not None:
            check(entry)
        self._write(entry)
        return entry, secret

    def find(self, client: str) -> StoredClient:
        """Return the client with this id.

        Raises:
            HearthNetError: `unauthorized` if there is none; `token_expired` if it has expired.
        """
        entry = self._load(client)
        if entry is None:
            raise HearthNetError("unauthorized", _NOT_KNOWN)
        if entry.expires_at <= now_ms():
            raise HearthNetError(
                "token_expired", "this client's time is over; ask the owner of this node for a new link"
            )
        return entry

    def prove(self, client: str, secret: str) -> StoredClient:
        """Return the client with this id and secret.

        Raises:
            HearthNetError: `unauthorized` if they do not match, without a further reason; `token_expired` if
                the client has expired.
        """
        entry = self._load(client)
        # An unknown id takes the same steps as a wrong secret.
        known = entry.secret if entry is not None else hash_of("")
        if not hmac.compare_digest(hash_of(secret), known) or entry is None:
            raise HearthNetError("unauthorized", _NOT_KNOWN)
        return self.find(client)

    def remove(self, client: str) -> bool:
        """Remove a client; return whether it existed."""
        if not _ID.fullmatch(client):
            return False
        try:
            self._file(client).unlink()
        except FileNotFoundError:
            return False
        return True

    def entries(self) -> list[StoredClient]:
        """Return all clients, oldest first, including expired ones."""
        found = [entry for entry in map(self._load, self.ids()) if entry is not None]
        return sorted(found, key=lambda entry: (entry.created_at, entry.id))

    def ids(self) -> list[str]:
        """Return the ids of all clients."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return [name[:-5] for name in names if name.endswith(".json") and _ID.fullmatch(name[:-5])]

    def _file(self, client: str) -> Path:
        return self._folder / f"{client}.json"

    def _load(self, client: str) -> StoredClient | None:
        """Return the client in its file; None where there is no readable one."""
        if not _ID.fullmatch(client):
            return None
        path = self._file(client)
        try:
            status = path.stat()
            entry = _read(path, status.st_ino, status.st_mtime_ns)
        except (OSError, msgspec.DecodeError):
            return None
        return entry if entry.id == client else None

    def _write(self, entry: StoredClient) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(entry), indent=1) + b"\n"
        write_whole(self._file(entry.id), data, durable=True)


@lru_cache(_MAX_CACHED)
def _read(path: Path, _inode: int, _changed_ns: int) -> StoredClient:
    """Return the client in a file; it is read again when its inode or time has changed."""
    return msgspec.json.decode(path.read_bytes(), type=StoredClient)


def hash_of(secret: str) -> str:
    """Return the stored hash of a secret.

    A secret has 256 random bits, so no slow hash is needed.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def api_key(entry: StoredClient, secret: str) -> str:
    """Return the client's key for `Authorization: Bearer`."""
    return f"{SECRET_PREFIX}{entry.id}_{secret}"


def split_secret(text: str) -> tuple[str, str]:
    """Return the id and the secret in `id_secret`.

    Raises:
        HearthNetError: `unauthorized` if the text has another form.
    """
    client, found, secret = text.partition("_")
    if not found:
        raise HearthNetError("unauthorized", _NOT_KNOWN)
    return client, secret


def check_client(name: str, key: str) -> None:
    """Check a client's name and its key, which may be empty.

    Raises:
        HearthNetError: `bad_request` for a name that cannot be displayed or an invalid key.
    """
    if not (0 < len(name) <= _LONGEST_NAME and name.isprintable() and name.strip()):
        raise HearthNetError(
            "bad_request", f"a client's name is 1 to {_LONGEST_NAME} characters that can be shown"
        )
    if key:
        ids.public_key(key)
