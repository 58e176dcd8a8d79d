"""Subjects: built from ids, and read back into ids.

Every node id stands in token form. Whoever publishes on a subject is pinned by the server to its own id in
it.

See: docs/protocol/subjects.md#grammar.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from hearthnet import ids
from hearthnet.errors import HearthNetError
from hearthnet.types import Capability

EVERYTHING: Final = "_all.v0"
"""Asked for in place of a capability by those who list the mesh (docs/decisions/0005)."""
LONGEST: Final = 320
"""Characters of a subject: two ends, a process and the longest capability fit into it. What is longer is
none of ours, and is not kept in mind."""
PACK: Final = "pack"
"""Stands in the place of a call's id where answers to several come."""
_INSTANCE: Final = re.compile(r"[a-z0-9]{8}")
_EVENT_TYPE: Final = re.compile(r"[a-z]+(?:\.[a-z]+)+")
_FOR_ALL: Final = frozenset({"find", "adv", "event"})


class Route(NamedTuple):
    """The two ends that a directed subject names, as full node ids, and what stands behind them."""

    family: str
    sender: str
    receiver: str
    rest: str


def topic(capability: Capability) -> str:
    """The part of a subject that names a capability: `rag.query.v1`."""
    return f"{capability.name}.v{capability.major}"


@lru_cache(maxsize=2048)
def call(caller: str, provider: str, instance: str, capability: Capability) -> str:
    """Where a call to one process goes."""
    ends = f"{ids.token_form(caller)}.{ids.token_form(provider)}"
    return f"hn.call.{ends}.{_process(instance)}.{topic(capability)}"


def control(caller: str, provider: str, instance: str, stream: str) -> str:
    """Where acks, input and cancel of one stream go."""
    ends = f"{ids.token_form(caller)}.{ids.token_form(provider)}"
    return f"hn.ctl.{ends}.{_process(instance)}.{_ulid(stream)}"


def reply(provider: str, caller: str, caller_instance: str, call_id: str) -> str:
    """Where a provider answers; every part is authenticated, so it can be led nowhere else."""
    return f"{_replies(provider, caller, caller_instance)}{_ulid(call_id)}"


@lru_cache(maxsize=2048)
def _replies(provider: str, caller: str, caller_instance: str) -> str:
    return f"hn.rep.{ids.token_form(provider)}.{ids.token_form(caller)}.{_process(caller_instance)}."


@lru_cache(maxsize=2048)
def replies(provider: str, caller: str, caller_instance: str) -> str:
    """Where a provider answers several calls of one process at once."""
    return f"{_replies(provider, caller, caller_instance)}{PACK}"


def find(caller: str, wanted: str) -> str:
    """Where `caller` asks who offers `wanted` (a topic, or EVERYTHING)."""
    return f"hn.find.{ids.token_form(caller)}.{wanted}"


def announce(node: str, capability: Capability) -> str:
    """Where `node` announces its offers of `capability`."""
    return f"hn.adv.{ids.token_form(node)}.{topic(capability)}"


def event(publisher: str, event_type: str) -> str:
    """Where `publisher` tells of events: `community.log` and others (bus/membership.py)."""
    return f"hn.event.{ids.token_form(publisher)}.{_event_type(event_type)}"


def calls_to(provider: str, instance: str) -> str:
    """What one process subscribes to for its calls."""
    return f"hn.call.*.{ids.token_form(provider)}.{_process(instance)}.>"


def calls_of(provider: str, instance: str, capability: Capability) -> str:
    """The calls of one capability among them, as NATS's own tools show it."""
    return calls_to(provider, instance).removesuffix(">") + topic(capability)


def control_to(provider: str, instance: str) -> str:
    """What one process subscribes to for the control frames of its streams."""
    return f"hn.ctl.*.{ids.token_form(provider)}.{_process(instance)}.>"


def replies_to(caller: str, instance: str) -> str:
    """What one process subscribes to for its answers."""
    return f"hn.rep.*.{ids.token_form(caller)}.{_process(instance)}.>"


def finds_of(wanted: str) -> str:
    """What a provider subscribes to for being found."""
    return f"hn.find.*.{wanted}"


def announcements_of(capability: Capability) -> str:
    """What a caller follows of a capability that it uses."""
    return f"hn.adv.*.{topic(capability)}"


def events_of(event_type: str) -> str:
    """What everybody subscribes to who follows events of one type."""
    return f"hn.event.*.{_event_type(event_type)}"


@lru_cache(maxsize=2048)
def directed(subject: str) -> Route:
    """What an `hn.call`, `hn.ctl` or `hn.rep` subject says; `bad_request` for another one."""
    parts = subject.split(".", 4) if len(subject) <= LONGEST else []
    if len(parts) != 5 or parts[0] != "hn" or parts[1] not in ("call", "ctl", "rep") or not parts[4]:
        raise HearthNetError("bad_request", "not a directed subject")
    return Route(parts[1], ids.from_token_form(parts[2]), ids.from_token_form(parts[3]), parts[4])


def open_sender(subject: str) -> tuple[str, str]:
    """Family and sender of an `hn.find`, `hn.adv` or `hn.event` subject; `bad_request` for another one."""
    parts = subject.split(".", 3) if len(subject) <= LONGEST else []
    if len(parts) != 4 or parts[0] != "hn" or parts[1] not in _FOR_ALL or not parts[3]:
        raise HearthNetError("bad_request", "not a subject for all")
    return parts[1], ids.from_token_form(parts[2])


def _process(instance: str) -> str:
    """`instance`, which comes from another's offer or header and, unchecked, could be `*` or two lines."""
    if not _INSTANCE.fullmatch(instance):
        raise HearthNetError("bad_request", f"{instance[:40]!r} names no process (8 small letters or digits)")
    return instance


def _event_type(text: str) -> str:
    if not _EVENT_TYPE.fullmatch(text):
        raise HearthNetError("bad_request", f"{text[:40]!r} is no event type such as community.log")
    return text


def _ulid(text: str) -> str:
    if not ids.is_ulid(text):
        raise HearthNetError("bad_request", f"{text[:40]!r} names no call (a ULID)")
    return text
