"""Subjects: built from checked parts, and read back.

See: docs/protocol/subjects.md#grammar.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hearthnet.core.capability_name import Capability, parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid, node_id
from hearthnet.protocol import subjects
from hearthnet.trust.authorization.permissions import node_permissions

KEYS = st.binary(min_size=32, max_size=32).map(node_id)
ANNA, BERTA = node_id(bytes([1]) * 32), node_id(bytes([2]) * 32)
QUERY = Capability("rag.query", 1, 3)
HERE, THERE, CALL = "a1b2c3d4", "z9y8x7w6", new_ulid(0)


def covers(pattern: str, subject: str) -> bool:
    """Whether a NATS pattern matches a subject."""
    wanted, tokens = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or token not in ("*", tokens[index]):
            return False
    return len(wanted) == len(tokens)


@pytest.mark.req("WIRE-10")
@given(KEYS, KEYS)
def test_directed_subjects_name_their_two_ends(caller: str, provider: str) -> None:
    call = subjects.call(caller, provider, THERE, QUERY)
    control = subjects.control(caller, provider, THERE, CALL)
    reply = subjects.reply(provider, caller, HERE, CALL)
    assert subjects.directed(call) == ("call", caller, provider, f"{THERE}.rag.query.v1")
    assert subjects.directed(control) == ("ctl", caller, provider, f"{THERE}.{CALL}")
    assert subjects.directed(reply) == ("rep", provider, caller, f"{HERE}.{CALL}")
    assert covers(subjects.calls_to(provider, THERE), call)
    assert covers(subjects.calls_of(provider, THERE, QUERY), call)
    assert covers(subjects.control_to(provider, THERE), control)
    assert covers(subjects.replies_to(caller, HERE), reply)


@pytest.mark.req("WIRE-10")
def test_a_process_hears_neither_its_siblings_nor_other_nodes() -> None:
    pairs: list[tuple[Callable[[str, str], str], Callable[[str, str], str]]] = [
        (subjects.calls_to, lambda node, process: subjects.call(ANNA, node, process, QUERY)),
        (subjects.control_to, lambda node, process: subjects.control(ANNA, node, process, CALL)),
        (subjects.replies_to, lambda node, process: subjects.reply(ANNA, node, process, CALL)),
    ]
    for listen, sent in pairs:
        assert covers(listen(BERTA, HERE), sent(BERTA, HERE))
        assert not covers(listen(BERTA, HERE), sent(BERTA, THERE))
        assert not covers(listen(BERTA, HERE), sent(ANNA, HERE))
    of_one = subjects.calls_of(BERTA, HERE, QUERY)
    for node, process, capability in (
        (BERTA, HERE, Capability("rag.ask", 1, 3)),
        (BERTA, HERE, Capability("rag.query", 2, 0)),
        (BERTA, THERE, QUERY),
        (ANNA, HERE, QUERY),
    ):
        assert not covers(of_one, subjects.call(ANNA, node, process, capability))


@pytest.mark.req("WIRE-10")
@given(KEYS)
def test_what_is_for_all_names_its_sender(node: str) -> None:
    topic = subjects.topic(QUERY)
    assert topic == "rag.query.v1"
    assert subjects.open_sender(subjects.find(node, topic)) == ("find", node)
    assert subjects.open_sender(subjects.announce(node, QUERY)) == ("adv", node)
    told = subjects.event(node, "community.log")
    assert subjects.open_sender(told) == ("event", node)
    assert covers(subjects.events_of("community.log"), told)
    assert not covers(subjects.events_of("community.log"), subjects.event(node, "community.heads"))
    assert covers(subjects.finds_of(topic), subjects.find(node, topic))
    assert covers(subjects.announcements_of(QUERY), subjects.announce(node, QUERY))
    assert not covers(subjects.announcements_of(QUERY), subjects.announce(node, Capability("rag.ask", 1, 3)))
    assert not covers(subjects.finds_of(topic), subjects.find(node, subjects.EVERYTHING))
    assert covers(subjects.finds_of(subjects.EVERYTHING), subjects.find(node, subjects.EVERYTHING))


@pytest.mark.req("WIRE-10")
@given(KEYS, KEYS)
def test_each_subject_is_one_that_its_sender_may_publish(caller: str, provider: str) -> None:
    """And nobody else, by the permissions of which the server's configuration is made."""
    assume(caller != provider)
    mine, theirs = node_permissions(caller), node_permissions(provider)
    call = subjects.call(caller, provider, THERE, QUERY)
    control = subjects.control(caller, provider, THERE, CALL)
    reply = subjects.reply(provider, caller, HERE, CALL)
    find, announce = subjects.find(caller, "rag.query.v1"), subjects.announce(provider, QUERY)
    event = subjects.event(provider, "auth.token.revoked")
    for sent, sender, hearer in (
        (call, mine, theirs),
        (control, mine, theirs),
        (reply, theirs, mine),
        (find, mine, theirs),
        (announce, theirs, mine),
        (event, theirs, mine),
    ):
        assert any(covers(pattern, sent) for pattern in sender.publish)
        assert any(covers(pattern, sent) for pattern in hearer.subscribe)
        assert not any(covers(pattern, sent) for pattern in hearer.publish)


@pytest.mark.req("WIRE-10")
def test_the_word_for_everything_is_no_capability() -> None:
    name, _, major = subjects.EVERYTHING.rpartition(".v")
    with pytest.raises(HearthNetError, match="not a capability"):
        parse_capability(f"{name}@{major}.0")


BUILDERS: dict[str, Callable[[str], str]] = {
    "call": lambda process: subjects.call(ANNA, BERTA, process, QUERY),
    "control": lambda process: subjects.control(ANNA, BERTA, process, CALL),
    "reply": lambda process: subjects.reply(BERTA, ANNA, process, CALL),
    "calls_to": lambda process: subjects.calls_to(BERTA, process),
    "control_to": lambda process: subjects.control_to(BERTA, process),
    "replies_to": lambda process: subjects.replies_to(ANNA, process),
    "control stream": lambda call: subjects.control(ANNA, BERTA, HERE, call),
    "reply call": lambda call: subjects.reply(BERTA, ANNA, HERE, call),
    "caller": lambda node: subjects.call(node, BERTA, HERE, QUERY),
    "provider": lambda node: subjects.call(ANNA, node, HERE, QUERY),
    "finder": lambda node: subjects.find(node, "rag.query.v1"),
    "announcer": lambda node: subjects.announce(node, QUERY),
    "publisher": lambda node: subjects.event(node, "community.log"),
    "event type": lambda event_type: subjects.event(ANNA, event_type),
    "events of": subjects.events_of,
}


@pytest.mark.req("WIRE-10")
@pytest.mark.parametrize(
    "part", ["", "*", ">", "a.B", "a.*", "x" * 8 + "\n", "12345678 \r\nPUB evil 0\r\n", "ABCDEFGH"]
)
@pytest.mark.parametrize("name", BUILDERS)
def test_no_part_can_widen_a_subject_or_add_a_line(name: str, part: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        BUILDERS[name](part)
    assert caught.value.code == "bad_request"


@pytest.mark.req("WIRE-10")
@pytest.mark.parametrize(
    "subject",
    [
        "",
        ".",
        "hn",
        "hn.call",
        "hn.call..",
        f"hn.call.{ANNA[8:]}.{BERTA[8:]}",
        f"hn.call.{ANNA[8:]}.{BERTA[8:]}.",
        f"hn.adv.{ANNA[8:]}.{BERTA[8:]}.x",
        f"hn.find.{ANNA[8:]}.",
        f"xx.call.{ANNA[8:]}.{BERTA[8:]}.x",
        f"hn.call.{ANNA[8:]}.short.x",
        f"hn.call.{ANNA[8:]}.{BERTA[8:-1]}_.x",
        f"hn.call.*.{BERTA[8:]}.x",
        f"hn.event.{ANNA[8:]}.x",
        "hn.adv.short.x",
    ],
)
def test_other_subjects_lead_nowhere(subject: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        subjects.directed(subject)
    assert caught.value.code == "bad_request"


@pytest.mark.req("WIRE-10")
@pytest.mark.parametrize(
    "subject",
    [
        "",
        "hn.adv",
        f"hn.adv.{ANNA[8:]}",
        f"hn.find.{ANNA[8:]}.",
        f"xx.find.{ANNA[8:]}.rag.query.v1",
        f"hn.event.{ANNA[8:]}.",
        f"hn.events.{ANNA[8:]}.x",
        f"hn.call.{ANNA[8:]}.{BERTA[8:]}.x",
        "hn.adv.short.rag.query.v1",
        f"hn.adv.{ANNA[8:-1]}_.rag.query.v1",
    ],
)
def test_other_subjects_for_all_name_nobody(subject: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        subjects.open_sender(subject)
    assert caught.value.code == "bad_request"
