"""What a node may publish and subscribe to on the server.

Permissions follow from the node's id alone, so that a server's configuration is a function of the roster.
They are defence in depth: who wrote a frame is decided by boxes and signatures, never by a subject.

See: docs/protocol/subjects.md#permissions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hearthnet.ids import token_form

OPERATOR_INBOX: Final = "_INBOX_ops"
"""The inbox prefix of operators, who ask over `$SRV` which services run and how they are."""

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

_ASKED: Final = "$SRV.>"
_ANSWERS: Final = f"{OPERATOR_INBOX}.>"

# An invite is for joining: its key may find and call `community.*` at any member, and hear the answers. It
# has no streams, announces nothing, publishes no events, and hears none.
_INVITE_PUBLISH: Final = ("hn.call.{node}.*.*.community.>", "hn.find.{node}.community.>")
_INVITE_SUBSCRIBE: Final = ("hn.rep.*.{node}.>", "hn.adv.*.community.>")


class Permissions(NamedTuple):
    """Subject patterns; what matches none of them is refused."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def node_permissions(node: str, *, at_home: bool = True) -> Permissions:
    """The subjects of the node with the full id `node`; `bad_request` where that is no node id.

    Only `at_home`, at the server of its own, it hears what operators ask over `$SRV` and answers them: those
    answers are neither signed nor bound to who gives them.

    There is no `allow_responses` and nothing of `$JS` or `$KV`: either lets a caller make others
    publish in its place.
    """
    allowed = _filled(node, _PUBLISH, _SUBSCRIBE)
    if not at_home:
        return allowed
    return Permissions((*allowed.publish, _ANSWERS), (*allowed.subscribe, _ASKED))


def operator_permissions() -> Permissions:
    """The subjects of an operator: to ask over `$SRV`, and to hear the answers."""
    return Permissions((_ASKED,), (_ANSWERS,))


def invite_permissions(invite_key: str) -> Permissions:
    """The subjects of an open invite: they follow from its key's id, as a node's do."""
    return _filled(invite_key, _INVITE_PUBLISH, _INVITE_SUBSCRIBE)


def _filled(node: str, publish: tuple[str, ...], subscribe: tuple[str, ...]) -> Permissions:
    token = token_form(node)
    return Permissions(
        publish=tuple(pattern.format(node=token) for pattern in publish),
        subscribe=tuple(pattern.format(node=token) for pattern in subscribe),
    )
