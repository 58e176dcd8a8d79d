"""The two sides of a recovery by helpers at the command line: shares handed out, kept, given and joined.

The helpers' key exists in the process of the command alone, when helpers are chosen and a recovery begins.

See: docs/protocol/persons.md#helpers.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.member_lookup import KnownMember, members, resolve_member
from hearthnet.cli.output.durations import format_time
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.trust.community.persons import Person
    from hearthnet.trust.community.recoveries import Recovery
    from hearthnet.trust.community.recovery_statements import HelpersNamed
    from hearthnet.trust.community.roster import Roster
    from hearthnet.trust.keys import Identity

HELPERS: Final = 3
_KEEP: Final = "community.recovery.keep@1.0"
_GIVE: Final = "community.recovery.give@1.0"
_REQUEST: Final = "request.json"


def find_person(roster: Roster, name: str) -> Person:
    """Return the person with this id or short id, or whose node has this name or id.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` if several have the name.
    """
    for one in roster.persons:
        if name in (one.person, ids.short_id(one.person)):
            return one
    node = resolve_member(name, members(roster))
    person = roster.person(roster.person_of(node.node_id))
    if person is None:
        raise HearthNetError("not_found", f"{node} has no person yet")
    return person


def chosen_helpers(roster: Roster, names: Sequence[str], person: str) -> list[KnownMember]:
    """Return the nodes with these names, of three different persons, none of whom is `person`.

    Raises:
        HearthNetError: `not_found` for an unknown name; `bad_request` for others than three persons.
    """
    known = members(roster)
    found = [resolve_member(name, known) for name in names]
    persons = {roster.owner(one.node_id) for one in found}
    if len(found) != HELPERS or len(persons) != HELPERS or person in persons:
        raise HearthNetError("bad_request", f"helpers are {HELPERS} different neighbours, and not yourself")
    return found


def witnesses_of(
    roster: Roster, helpers: Sequence[KnownMember], names: Sequence[str], person: str
) -> list[str]:
    """Return the nodes that witness: the helpers', those with `names`, and trusted members', one a person.

    Not plain members by themselves: two helpers could have invited them.
    """
    from hearthnet.trust.community.recovery_statements import MAX_WITNESSES
    from hearthnet.trust.community.roster import RANK

    known = members(roster)
    nodes = [one.node_id for one in helpers] + [resolve_member(name, known).node_id for name in names]
    nodes += [one.node_id for one in roster.members if RANK[one.level] >= RANK["trusted"]]
    found: dict[str, str] = {}
    for node in nodes:
        found.setdefault(roster.owner(node), node)
    found.pop(person, None)
    return list(found.values())[:MAX_WITNESSES]


def hand_out(
    home: Home, own: Identity, statement: HelpersNamed, helpers: Sequence[KnownMember], shares: Sequence[str]
) -> None:
    """Send one share to each helper's node, which keeps it.

    Raises:
        HearthNetError: as the node refuses, with its name; `unauthorized` where its owner has not agreed.
    """
    import msgspec

    from hearthnet.trust.community.commands import CommunityAuthor

    data = msgspec.to_builtins(statement)

    async def send(bus: Bus) -> None:
        for helper, share in zip(helpers, shares, strict=True):
            sealed = own.seal_to(helper.node_id, CommunityAuthor.share_purpose, share.encode("ascii"))
            body = {"params": {}, "input": {"statement": data, "sealed": ids.b64(sealed)}}
            try:
                await bus.call(_KEEP, body, node=helper.node_id)
            except HearthNetError as error:
                raise HearthNetError(
                    error.code, f"{helper} keeps no share: {error.message}", details=error.details
                ) from error

    on_bus(home, send)


def last_number(home: Home) -> int:
    """Return the number of the last statement that this home has begun to hand out; 0 without one."""
    return int(read_page(_own_helpers(home)).get("last", 0))


def begin_number(home: Home, number: int) -> None:
    """Write down that a statement with this number goes to helpers.

    It may never be in the log, and who has it could put it there: the next one has a higher number.
    """
    page = read_page(_own_helpers(home)) | {"last": number}
    write_whole(_own_helpers(home), json.dumps(page).encode("ascii"), durable=True)


def remember_helpers(home: Home, number: int, helpers: Sequence[KnownMember]) -> None:
    """Write down the holders of shares; the community does not know which of the witnesses do."""
    page = {"number": number, "helpers": [one.node_id for one in helpers], "last": number}
    write_whole(_own_helpers(home), json.dumps(page).encode("ascii"))


def remembered_helpers(home: Home, number: int) -> list[str]:
    """Return the nodes that have a share of the helpers with this number; empty where it is not known."""
    page = read_page(_own_helpers(home))
    return list(page["helpers"]) if page.get("number") == number else []


def agree(home: Home, person: str) -> None:
    """Write that the owner of this home helps `person`; a share that is there stays."""
    path = home.helping / f"{ids.token_form(person)}.json"
    if not path.exists():
        home.helping.mkdir(mode=0o700, parents=True, exist_ok=True)
        page = {"person": person, "number": 0, "share": ""}
        write_whole(path, json.dumps(page).encode("ascii"), durable=True)


def kept_shares(home: Home) -> list[dict[str, Any]]:
    """Return the shares in this home for persons whom its owner helps."""
    return [read_page(path) for path in sorted(home.helping.glob("*.json"))]


def give(home: Home, own: Identity, person: str, share: str, node: str) -> None:
    """Send the share that is kept here to `node`, where the person is recovered.

    Raises:
        HearthNetError: as that node refuses.
    """
    from hearthnet.trust.community.commands import CommunityAuthor

    sealed = own.seal_to(node, CommunityAuthor.share_purpose, share.encode("ascii"))
    body = {"params": {}, "input": {"person": person, "sealed": ids.b64(sealed)}}

    async def send(bus: Bus) -> None:
        await bus.call(_GIVE, body, node=node)

    on_bus(home, send)


def node_with_code(roster: Roster, person: str, code: str) -> KnownMember:
    """Return the member's node that has this code for `person`.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` if there are two, or it is another
            person's, whose code somebody may have read out as the person's.
    """
    from hearthnet.trust.community.recovery_statements import share_code

    typed = "".join(filter(str.isalnum, code)).lower()
    found = [one for one in members(roster) if share_code(roster.community_id, person, one.node_id) == typed]
    if len(found) > 1:
        raise HearthNetError("bad_request", "two nodes have that code; give no share")
    if not found:
        raise HearthNetError("not_found", "no member's node has that code; ask for it once more")
    owner = roster.owner(found[0].node_id)
    if owner not in (found[0].node_id, person):
        whose = roster.person_name(owner) or ids.short_id(owner)
        raise HearthNetError("bad_request", f"that code is of a node of {whose}; give no share")
    return found[0]


def grouped(code: str) -> str:
    """Return a code as it is read aloud."""
    return "-".join(code[start : start + 4] for start in range(0, len(code), 4))


def ask(home: Home, person: str) -> None:
    """Write that `person` is to be recovered in this home."""
    home.recovering.mkdir(mode=0o700, parents=True, exist_ok=True)
    page = {"person": person}
    write_whole(home.recovering / _REQUEST, json.dumps(page).encode("ascii"), durable=True)


def asked_person(home: Home) -> str:
    """Return the person to be recovered in this home; empty if none is."""
    return str(read_page(home.recovering / _REQUEST).get("person", ""))


def given_shares(home: Home) -> list[str]:
    """Return the shares that helpers have given to this home."""
    return [path.read_text("ascii") for path in sorted(home.recovering.glob("*.share"))]


def next_key(home: Home, is_new: bool) -> Identity:
    """Return the person key of the recovery in this home: a new one, else that which is prepared.

    A command that was cut off may have announced that one, and witnesses sign for one of an epoch only.
    """
    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.trust.keys import Identity

    path = home.recovering / "person.key"
    return Identity.generate() if is_new or not path.exists() else load_identity(path)


def prepare(home: Home, key: Identity, removals: bytes) -> None:
    """Write what the node needs once the recovery is completed."""
    folder = home.recovering
    write_whole(folder / "removals.json", removals, durable=True)
    write_whole(folder / "person.key", key.to_text().encode("ascii"), durable=True)


def forget_shares(home: Home) -> None:
    """Remove the shares that were given to this home, after the announcement that they were for."""
    for path in home.recovering.glob("*.share"):
        path.unlink()


def stop(home: Home) -> None:
    """Forget the recovery that was to take place in this home."""
    shutil.rmtree(home.recovering)


def own_recovery(home: Home, person: Person) -> Recovery | None:
    """Return the open recovery of `person` that this home has begun."""
    from hearthnet.bus.session.keyring import load_identity

    with contextlib.suppress(HearthNetError):
        key = load_identity(home.recovering / "person.key").node_id
        return next((one for one in person.recoveries if one.begun.key == key), None)
    return None


def begun_recoveries(home: Home, roster: Roster, own: str) -> list[dict[str, Any]]:
    """Return the recoveries of the person of the node `own`, or of the one to be recovered here."""
    from hearthnet.service.community.queued_statements import as_json

    person = roster.person(roster.person_of(own) or asked_person(home))
    return [as_json(roster, one, now_ms()) for one in (person.recoveries if person else ())]


def shown_recovery(page: dict[str, Any], now_ms: int) -> str:
    """Return a recovery that has begun as a line for a person."""
    stopped = "a device objects" if page["objected"] else "to stop it: hearthnet recover --object"
    time = format_time(page["not_before"], now_ms)
    return f"helpers have begun to replace the person key, from {time} at the earliest; {stopped}"


def read_page(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`; empty if there is none.

    Raises:
        HearthNetError: `bad_request` if the file is damaged.
    """
    try:
        page = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        page = None
    if not isinstance(page, dict):
        raise HearthNetError("bad_request", f"{path} is damaged: it is no JSON object")
    return page


def _own_helpers(home: Home) -> Path:
    return home.keys / "helpers.json"
