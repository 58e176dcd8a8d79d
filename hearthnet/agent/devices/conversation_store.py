"""The conversations of the persons at one gateway, as files that this node alone opens.

services/gateway/conversations/<person>/<id>     one conversation, sealed for the person's principal

The gateway and the exchange with the person's other nodes write here, in processes of their own: each change
is made under a lock of the folder. A deleted conversation leaves its id and revisions for a while, so that it
comes back from nowhere.

The key follows from that of the node and not from the person key, which a recovery replaces: all that the old
one had sealed would be lost then (docs/decisions/0209).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hearthnet.agent.devices.conversation import Conversation, merged, pack, revised, unpack
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.core.ids import is_ulid
from hearthnet.core.times import least_ms, now_ms
from hearthnet.trust.keys import Identity

MAX_CONVERSATIONS: Final = 500
MAX_BYTES: Final = 32 * 1024 * 1024
MAX_DELETED: Final = 1_000
"""The deleted conversations that are remembered; the oldest are forgotten first."""
DELETED_MS: Final = 90 * 24 * 3_600 * 1_000
"""The time for which a deletion is remembered, for devices that were away."""
REVISION: Final = "revision"
"""The rule of the error for a change of a revision that is not the present one."""
_PURPOSE: Final = "conversation of "
_LOCK: Final = ".lock"
_Stamp = tuple[int, int]
_log = logging.getLogger(__name__)


class ConversationStore:
    """The conversations of one principal at the node in `home`."""

    def __init__(self, home: Home, identity: Identity, principal: str) -> None:
        self._identity = identity
        self._purpose = _PURPOSE + principal
        name = content_hash(self._purpose.encode("utf-8"))[7:39]
        self.folder: Final = home.service("gateway") / "conversations" / name
        self._known: dict[str, tuple[_Stamp, Conversation]] = {}

    @classmethod
    def of_guest(cls, home: Home, identity: Identity, name: str) -> ConversationStore:
        """Return the conversations of the guest `name` of the node."""
        return cls(home, identity, f"{identity.node_id}/{name}")

    def erase(self) -> None:
        """Remove all of them, with what is remembered of deleted ones. Raises OSError."""
        if self.folder.is_dir():
            shutil.rmtree(self.folder)

    def all(self) -> list[Conversation]:
        """Return all, newest first, the deleted ones among them."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        read = [self._read(path) for path in paths if is_ulid(path.name)]
        found = [one for one in read if one is not None]
        self._known = {one.id: self._known[one.id] for one in found}
        return sorted(found, key=lambda one: (one.at, one.id), reverse=True)

    def find(self, conversation: str) -> Conversation | None:
        """Return the conversation with this id, deleted or not; None where there is none."""
        return self._read(self.folder / conversation) if is_ulid(conversation) else None

    def change(
        self, conversation: str, base: str, title: str, content: dict[str, Any], at: int
    ) -> Conversation:
        """Store a revision that follows `base` (empty: a new conversation), and return it.

        Raises:
            HearthNetError: `bad_request` (`revision`) if another revision is the present one; `not_found` if
                it was deleted; `payload_too_large`; `capacity_exceeded` if there are too many.
        """
        with self._locked():
            earlier = self.find(conversation)
            if earlier is not None and earlier.deleted:
                raise HearthNetError("not_found", "this conversation was deleted")
            present = "" if earlier is None else earlier.revision
            made = revised(earlier, conversation, title, content, at, now_ms())
            if base != present:
                raise HearthNetError(
                    "bad_request",
                    "another page has changed this conversation since; take its changes over first",
                    details={"rule": REVISION, "revision": present},
                )
            self._check_room(made)
            self._write(made)
            return made

    def delete(self, conversation: str) -> None:
        """Delete a conversation.

        Raises:
            HearthNetError: `not_found` if there is none.
        """
        with self._locked():
            earlier = self.find(conversation)
            if earlier is None:
                raise HearthNetError("not_found", "there is no such conversation")
            if not earlier.deleted:
                self._write(revised(earlier, conversation, "", {}, earlier.at, now_ms(), deleted=True))
            self._forget_old()

    def take_in(self, other: Conversation) -> None:
        """Merge the conversation of another device of the person with the one here.

        Raises:
            HearthNetError: As `change`.
        """
        with self._locked():
            own = self.find(other.id)
            if own is None and other.deleted and other.changed_at < now_ms() - DELETED_MS:
                return  # forgotten here, which the other device has not done yet
            stays, beside = (other, None) if own is None else merged(own, other)
            for one in (stays, beside):
                if one is not None and self.find(one.id) != one:
                    self._check_room(one)
                    self._write(one)
            if stays.deleted:
                self._forget_old()

    def _check_room(self, made: Conversation) -> None:
        if made.deleted:
            return
        others = [one for one in self.all() if not one.deleted and one.id != made.id]
        size = sum((self.folder / one.id).stat().st_size for one in others)
        if len(others) >= MAX_CONVERSATIONS or size + len(pack(made)) > MAX_BYTES:
            raise HearthNetError(
                "capacity_exceeded", "there is no room for more conversations; delete some that are old"
            )

    def _forget_old(self) -> None:
        deleted = sorted(
            (one for one in self.all() if one.deleted), key=lambda one: one.changed_at, reverse=True
        )
        oldest = least_ms() - DELETED_MS
        for place, one in enumerate(deleted):
            if place >= MAX_DELETED or one.changed_at < oldest:
                (self.folder / one.id).unlink(missing_ok=True)

    def _read(self, path: Path) -> Conversation | None:
        """Return the conversation in a file, read again when that has changed."""
        own = self._identity
        try:
            status = path.stat()
            stamp = status.st_mtime_ns, status.st_ino
            known = self._known.get(path.name)
            if known is not None and known[0] == stamp:
                return known[1]
            found = unpack(own.open_from(own.node_id, self._purpose, path.read_bytes()))
            if found.id != path.name:
                raise HearthNetError("invalid_signature", f"it is {found.id}")
        except FileNotFoundError:
            return None
        except (OSError, HearthNetError) as error:
            _log.warning("the conversation in %s is of no use: %s", path, error)
            return None
        self._known[path.name] = stamp, found
        return found

    def _write(self, conversation: Conversation) -> None:
        own = self._identity
        sealed = own.seal_to(own.node_id, self._purpose, pack(conversation))
        write_whole(self.folder / conversation.id, sealed, durable=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes of the node from changing the folder."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
