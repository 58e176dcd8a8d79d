"""The subjects that a node may publish and subscribe to on the server.

Permissions follow from the node's id alone, so that a server's configuration is a function of the roster.
They are defence in depth: boxes and signatures prove the sender of a frame, never a subject.

See: docs/protocol/subjects.md#permissions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hearthnet.core.ids import token_form

OPERATOR_INBOX: Final = "_INBOX_ops"
"""The inbox prefix of operators, who query running services and their state over `$SRV`."""

_PUBLISH: Final = (
    "hn.call.{node}.>",
    "hn.ctl.{node}.>",
    "hn.find.{node}.>",
    "hn.adv.{node}.>",
    "hn.event.{node}.>",
    "hn.rep.{node}.>",
)
_SUBSCRIBE: Final = (
    "hn.call.*.{node}.>",
    "hn.ctl.*.{node}.>",
    "hn.rep.*.{node}.>",
    "hn.find.>",
    "hn.adv.>",
    "hn.event.>",
    "_INBOX.{node}.>",
)

_OWN: Final = "hn.*.{node}.>"
"""The frames of the node itself."""
_DISCOVERY: Final = "$SRV.>"
_ANSWERS: Final = f"{OPERATOR_INBOX}.>"

# An invite is for joining: its key may find and call `community.*` at any member, and receive the answers. It
# has no streams, announces nothing, and neither publishes nor receives events.
_INVITE_PUBLISH: Final = ("hn.call.{node}.*.*.community.>", "hn.find.{node}.community.>")
_INVITE_SUBSCRIBE: Final = ("hn.rep.*.{node}.>", "hn.adv.*.community.>")


class Permissions(NamedTuple):
    """Subject patterns; subjects that match none of them, or one of `unheard`, are refused."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    unheard: tuple[str, ...] = ()


def node_permissions(node: str, *, at_home: bool = True) -> Permissions:
    """Return the subjects of the node with the full id `node`.

    Only `at_home`, at its own server, it may receive and answer the queries of operators over `$SRV`, since
    those answers are neither signed nor bound to their sender. There is no `allow_responses` and nothing of
    `$JS` or `$KV`: with either, a caller could make others publish in its place.

    Raises:
        HearthNetError: `bad_request` if `node` is not a node id.
    """
    allowed = _filled(node, _PUBLISH, _SUBSCRIBE)
    if not at_home:
        return allowed
    return Permissions((*allowed.publish, _ANSWERS), (*allowed.subscribe, _DISCOVERY))


def peer_permissions(node: str) -> Permissions:
    """Return the subjects of the second connection of a node's processes: all but those of its own frames."""
    allowed = _filled(node, _PUBLISH, _SUBSCRIBE)
    return allowed._replace(unheard=(_OWN.format(node=token_form(node)),))


def operator_permissions() -> Permissions:
    """Return the subjects of an operator: queries over `$SRV`, and their answers."""
    return Permissions((_DISCOVERY,), (_ANSWERS,))


def invite_permissions(invite_key: str) -> Permissions:
    """Return the subjects of an open invite, which follow from its key's id as a node's do."""
    return _filled(invite_key, _INVITE_PUBLISH, _INVITE_SUBSCRIBE)


def _filled(node: str, publish: tuple[str, ...], subscribe: tuple[str, ...]) -> Permissions:
    token = token_form(node)
    return Permissions(
        publish=tuple(pattern.format(node=token) for pattern in publish),
        subscribe=tuple(pattern.format(node=token) for pattern in subscribe),
    )
