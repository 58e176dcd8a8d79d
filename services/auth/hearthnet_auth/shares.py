"""Shares of helpers' keys: those that this home keeps for others, and those that it is given for a recovery.

    keys/helping/PERSON.json        the owner has agreed to help; the share, once the person has sent it
    keys/recovering/request.json    the person whom this new home recovers
    keys/recovering/NODE.share      a share that the helper with that node has given
    keys/recovering/person.key      the new person key, until the recovery is completed
    keys/recovering/removals.json   the statements that then remove the lost devices

The commands write the first of each and put shares together (hearthnet/cli); this node only keeps them.

See: docs/protocol/persons.md#handing-over-shares.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from hearthnet import HearthNetError, Home
from hearthnet.bus import load_identity
from hearthnet.core import now_ms, unb64
from hearthnet.trust import CommunityAuthor, Identity, Roster
from hearthnet_auth.private_files import write_private
from hearthnet_auth.schemas import GiveInput, KeepInput

MAX_SHARE_LENGTH: Final = 400
_HELPERS_NAMED: Final = "community.person.helpers_named"
_NONE: Final = ""


def keep(held: Roster, own: Identity, home: Home, sender: str, wanted: KeepInput) -> int:
    """Keep a share for a person whom the owner of this home has agreed to help; return its number.

    The statement of the person's recovery key goes along, so that no other key replaces a share: a thief of
    the person's node could make the true one useless. Every member reads that statement in the log later on,
    so each number brings one share.

    Raises:
        HearthNetError: `bad_request`, `invalid_signature` or `unauthorized` for a statement that does not
            hold or count, a share that does not open, an earlier number, another share of the same number,
            and without the owner's agreement.
    """
    statement = wanted.statement
    CommunityAuthor(held, own).carry(_HELPERS_NAMED, statement, now_ms())
    person, number = str(statement["person"]), int(statement["number"])
    path = _path(home.helping, person, ".json")
    agreed = _read(path)
    if not agreed:
        raise HearthNetError(
            "unauthorized",
            "the owner of that home has not agreed to help; there: hearthnet helpers accept",
        )
    if number < agreed["number"]:
        raise HearthNetError("unauthorized", "a later share of that person is here")
    share = _opened(own, sender, wanted.sealed)
    if number == agreed["number"] and agreed["share"] not in ("", share):
        raise HearthNetError("unauthorized", "another share with that number is here; choose helpers again")
    write_private(path, json.dumps({**agreed, "number": number, "share": share}).encode("ascii"))
    return number


def take(held: Roster, own: Identity, home: Home, sender: str, wanted: GiveInput) -> None:
    """Take a share for the recovery that waits for it in this home.

    Raises:
        HearthNetError: `not_found` if no recovery of that person waits here, or the person has no helpers;
            `unauthorized` if the sender is none of the nodes that the person has named; `invalid_signature`
            for a share that does not open.
    """
    person = held.person(wanted.person)
    if _read(home.recovering / "request.json").get("person") != wanted.person:
        raise HearthNetError("not_found", "this home does not recover that person")
    if person is None or person.helpers is None:
        raise HearthNetError("not_found", "that person has no helpers")
    if sender.removeprefix("ed25519:") not in person.helpers.witnesses:
        raise HearthNetError("unauthorized", "the person has not named that node")
    share = _opened(own, sender, wanted.sealed)
    write_private(_path(home.recovering, sender, ".share"), share.encode("ascii"))


def complete(home: Home, held: Roster) -> bool:
    """Take the new person key into use if the community has it now; return whether it is new here.

    The key comes first, then the statements that wait for the log, so that the next start goes on wherever
    this one ends.
    """
    person = held.person(str(_read(home.recovering / "request.json").get("person", _NONE)))
    path = home.recovering / "person.key"
    if person is None or not path.exists():
        return False
    key = load_identity(path)
    if key.node_id != person.key:
        return False
    write_private(home.person_key, key.to_text().encode("ascii"))
    with home.changing_statements() as queue:
        waiting = json.loads(queue.read_bytes()) if queue.exists() else []
        waiting += json.loads((home.recovering / "removals.json").read_bytes())
        write_private(queue, json.dumps(waiting).encode("ascii"))
    shutil.rmtree(home.recovering)
    return True


def _opened(own: Identity, sender: str, sealed: str) -> str:
    data = own.open_from(sender, CommunityAuthor.share_purpose, unb64(sealed))
    share = data.decode("ascii", "replace")
    if len(share) > MAX_SHARE_LENGTH or not share.replace(" ", "").isalpha():
        raise HearthNetError("bad_request", "a share is words")
    return share


def _path(folder: Path, key: str, ending: str) -> Path:
    return folder / f"{key.removeprefix('ed25519:')}{ending}"


def _read(path: Path) -> dict[str, Any]:
    """Return the JSON in `path`; empty if there is none."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return content
