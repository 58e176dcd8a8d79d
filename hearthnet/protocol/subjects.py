"""Subjects: built from ids, and parsed back into ids.

Node ids are in token form. The server restricts each publisher to subjects with its own id in it.

See: docs/protocol/subjects.md#grammar.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from hearthnet.core import ids
from hearthnet.core.capability_name import Capability
from hearthnet.core.errors import HearthNetError

EVERYTHING: Final = "_all.v0"
"""Replaces the capability in a find for all offers of the mesh (docs/decisions/0005)."""
LONGEST: Final = 320
"""Maximum length of a subject in characters: two ends, a process and the longest capability fit. A longer one
is refused and not cached.
"""
PACK: Final = "pack"
"""Replaces the call's id in the subject of a batch of answers."""
AT_HOME: Final = "home"
"""Replaces the process in the subject of announcements to this node; no process is called so."""
_INSTANCE: Final = re.compile(r"[a-z0-9]{8}")
_EVENT_TYPE: Final = re.compile(r"[a-z]+(?:\.[a-z]+)+")
_FOR_ALL: Final = frozenset({"find", "adv", "event"})


class Route(NamedTuple):
    """The two ends of a directed subject, as full node ids, and the part after them."""

    family: str
    sender: str
    receiver: str
    rest: str


def topic(capability: Capability) -> str:
    """Return the part of a subject that names a capability: `rag.query.v1`."""
    return f"{capability.name}.v{capability.major}"


@lru_cache(maxsize=2048)
def call(caller: str, provider: str, instance: str, capability: Capability) -> str:
    """Return the subject of a call to one process."""
    ends = f"{ids.token_form(caller)}.{ids.token_form(provider)}"
    return f"hn.call.{ends}.{_process(instance)}.{topic(capability)}"


def control(caller: str, provider: str, instance: str, stream: str) -> str:
    """Return the subject of the acks, inputs and cancel of one stream."""
    ends = f"{ids.token_form(caller)}.{ids.token_form(provider)}"
    return f"hn.ctl.{ends}.{_process(instance)}.{_ulid(stream)}"


def reply(provider: str, caller: str, caller_instance: str, call_id: str) -> str:
    """Return the subject of a provider's answer.

    Every part of it is authenticated, so that an answer cannot be misdirected.
    """
    return f"{_replies(provider, caller, caller_instance)}{_ulid(call_id)}"


@lru_cache(maxsize=2048)
def _replies(provider: str, caller: str, caller_instance: str) -> str:
    return f"hn.rep.{ids.token_form(provider)}.{ids.token_form(caller)}.{_process(caller_instance)}."


@lru_cache(maxsize=2048)
def replies(provider: str, caller: str, caller_instance: str) -> str:
    """Return the subject of a batch of answers to one process."""
    return f"{_replies(provider, caller, caller_instance)}{PACK}"


def find(caller: str, wanted: str) -> str:
    """Return the subject of a find by `caller` for `wanted`, a topic or EVERYTHING."""
    return f"hn.find.{ids.token_form(caller)}.{wanted}"


def announce(node: str, capability: Capability) -> str:
    """Return the subject of the announcements of `capability` by `node`."""
    return f"hn.adv.{ids.token_form(node)}.{topic(capability)}"


def announce_at_home(node: str, capability: Capability) -> str:
    """Return the subject on which `node` tells its own processes the offers that no other node may learn."""
    token = ids.token_form(node)
    return f"hn.rep.{token}.{token}.{AT_HOME}.{topic(capability)}"


def event(publisher: str, event_type: str) -> str:
    """Return the subject of events that `publisher` publishes.

    Types are `community.log` and others (bus/session/membership.py).
    """
    return f"hn.event.{ids.token_form(publisher)}.{_event_type(event_type)}"


def calls_to(provider: str, instance: str) -> str:
    """Return the pattern of the calls to one process."""
    return f"hn.call.*.{ids.token_form(provider)}.{_process(instance)}.>"


def calls_of(provider: str, instance: str, capability: Capability) -> str:
    """Return the pattern of the calls to one process of one capability.

    For the tools of NATS, which show it.
    """
    return calls_to(provider, instance).removesuffix(">") + topic(capability)


def control_to(provider: str, instance: str) -> str:
    """Return the pattern of the control frames of one process's streams."""
    return f"hn.ctl.*.{ids.token_form(provider)}.{_process(instance)}.>"


def replies_to(caller: str, instance: str) -> str:
    """Return the pattern of the answers to one process."""
    return f"hn.rep.*.{ids.token_form(caller)}.{_process(instance)}.>"


def finds_of(wanted: str) -> str:
    """Return the pattern of the finds for `wanted`."""
    return f"hn.find.*.{wanted}"


def announcements_of(capability: Capability) -> str:
    """Return the pattern of the announcements of `capability`."""
    return f"hn.adv.*.{topic(capability)}"


def events_of(event_type: str) -> str:
    """Return the pattern of all events of one type."""
    return f"hn.event.*.{_event_type(event_type)}"


@lru_cache(maxsize=2048)
def directed(subject: str) -> Route:
    """Parse an `hn.call`, `hn.ctl` or `hn.rep` subject.

    Raises:
        HearthNetError: `bad_request` for any other subject.
    """
    parts = subject.split(".", 4) if len(subject) <= LONGEST else []
    if len(parts) != 5 or parts[0] != "hn" or parts[1] not in ("call", "ctl", "rep") or not parts[4]:
        raise HearthNetError("bad_request", "not a directed subject")
    return Route(parts[1], ids.from_token_form(parts[2]), ids.from_token_form(parts[3]), parts[4])


def open_sender(subject: str) -> tuple[str, str]:
    """Return family and sender of an `hn.find`, `hn.adv` or `hn.event` subject.

    Raises:
        HearthNetError: `bad_request` for any other subject.
    """
    parts = subject.split(".", 3) if len(subject) <= LONGEST else []
    if len(parts) != 4 or parts[0] != "hn" or parts[1] not in _FOR_ALL or not parts[3]:
        raise HearthNetError("bad_request", "not a subject for all")
    return parts[1], ids.from_token_form(parts[2])


def _process(instance: str) -> str:
    """Check `instance`, which comes from an offer or header of another node.

    Unchecked, it could be `*` or contain a line break.
    """
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
