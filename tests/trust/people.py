"""Persons for tests of the community's rules: their keys, and events with their statements."""

from __future__ import annotations

from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community import recovery_statements as recoveries
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.person_statements import DeviceKind
from hearthnet.trust.community.recovery_statements import HelpersNamed, RecoveryBegun
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import act
from tests.trust.town import with_events

PAPER, OTHER_PAPER, FIRST, SECOND, THIEF_KEY, PAGE, PHONE, SHARED, SHARED_LATER, THIRD = (
    Identity(bytes([number]) * 32) for number in range(120, 130)
)
"""Two recovery keys, person keys, keys of a page and a phone, two helpers' keys and another person key."""

Place = tuple[int, str, int] | None


def keyed(
    held: Roster,
    author: Identity,
    paper: Identity = PAPER,
    key: Identity = FIRST,
    epoch: int = 1,
    stay: tuple[Identity, ...] = (),
    place: Place = None,
) -> CommunityEvent:
    """`author` carries that `key` is the person's from `epoch` on."""
    devices = tuple(one.node_id for one in stay)
    content = statements.keyed(held.community_id, paper, epoch, key.node_id, devices)
    return act(held, author, statements.KEYED, content, place)


def added(
    held: Roster,
    author: Identity,
    device: Identity | None = None,
    paper: Identity = PAPER,
    key: Identity = FIRST,
    kind: DeviceKind | None = None,
    place: Place = None,
    name: str = "device",
) -> CommunityEvent:
    """`author` carries that `device` is the person's: itself as a node, or another one as a page."""
    of, what = device or author, kind or ("node" if device is None else "browser")
    offered = statements.offered_device(held.community_id, paper.node_id, key, of.node_id, what, name)
    content = statements.consented(held.community_id, offered, of)
    return act(held, author, statements.DEVICE_ADDED, content, place)


def removed(
    held: Roster,
    author: Identity,
    device: Identity,
    paper: Identity = PAPER,
    key: Identity = FIRST,
    known: tuple[str, ...] | None = None,
    place: Place = None,
) -> CommunityEvent:
    """`author` carries that the person removes `device`; `known` instead of all of its events."""
    ends = held.history.tips.get(device.node_id, ())
    heads = tuple(tip.hash for tip in ends) if known is None else known
    content = statements.device_removed(held.community_id, paper.node_id, key, device.node_id, heads, "lost")
    return act(held, author, statements.DEVICE_REMOVED, content, place)


def settled(held: Roster, *nodes: Identity, paper: Identity = PAPER, key: Identity = FIRST) -> Roster:
    """`held` with a person whose devices are `nodes`."""
    held = with_events(held, keyed(held, nodes[0], paper, key))
    for one in nodes:
        held = with_events(held, added(held, one, paper=paper, key=key))
    return held


def keys(held: Roster, paper: Identity = PAPER) -> list[str]:
    """The keys of the person's devices."""
    return [one.key for one in held.devices(paper.node_id)]


def helping(
    held: Roster,
    *witnesses: Identity,
    key: Identity = SHARED,
    number: int = 1,
    epoch: int = 1,
    paper: Identity = PAPER,
) -> HelpersNamed:
    """The person says that helpers hold `key`, and who witnesses."""
    return recoveries.helpers_named(
        held.community_id,
        paper,
        key.node_id,
        number=number,
        epoch=epoch,
        wait_seconds=1,
        witnesses=tuple(one.node_id for one in witnesses),
    )


def begun(
    held: Roster,
    key: Identity = SECOND,
    *,
    by: Identity = SHARED,
    base: int = 1,
    epoch: int = 2,
    stay: tuple[Identity, ...] = (),
    paper: Identity = PAPER,
) -> RecoveryBegun:
    """Helpers announce that `key` is to be the person key."""
    devices = tuple(one.node_id for one in stay)
    return recoveries.recovery_begun(
        held.community_id, paper.node_id, by, key.node_id, base=base, epoch=epoch, stay=devices
    )


def carried(held: Roster, author: Identity, *contents: recoveries.Content, place: Place = None) -> Roster:
    """`held` with events of `author` that carry the statements."""
    for content in contents:
        held = with_events(held, act(held, author, KINDS[type(content)], content, place))
    return held


def witnessed(held: Roster, announced: RecoveryBegun, *witnesses: Identity) -> Roster:
    """`held` with the word of the witnesses, each in an event of its own."""
    name = recoveries.recovery_id(held.community_id, announced)
    for one in witnesses:
        said = recoveries.witnessed(held.community_id, announced.person, name, one)
        held = carried(held, one, said)
    return held


KINDS = {kind: name for name, kind in recoveries.CONTENTS.items()}
