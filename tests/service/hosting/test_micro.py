"""The documents that a service answers to NATS's own tools."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.service.decorators import Statistics
from hearthnet.service.hosting import micro
from hearthnet.service.hosting.micro import About, Served
from hearthnet.trust.keys import Identity
from tests.helpers import adr32

ABOUT = About("rag", "abcdefgh", "1.2.3", "Search.", Identity.generate().node_id, "2026-11-21T20:15:00.000Z")
VERBS = ("PING", "INFO", "STATS")


def served(name: str = "rag.query@1.0") -> Served:
    """A capability that is offered, with counts of its own."""
    return Served(parse_capability(name), "blake3:" + "0" * 64, 0, Statistics())


@pytest.mark.req("OPERATOR-1")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("subject", ["$SRV.{verb}", "$SRV.{verb}.rag", "$SRV.{verb}.rag.abcdefgh"])
def test_each_verb_has_its_document(verb: str, subject: str) -> None:
    answer = micro.document(subject.format(verb=verb), ABOUT, [served(), served("llm.chat@2.0")])
    assert answer is not None
    adr32.check(verb, answer)
    assert (answer["name"], answer["id"], answer["version"]) == ("rag", "abcdefgh", "1.2.3")
    assert answer["metadata"] == {"node": ABOUT.node}


@pytest.mark.req("OPERATOR-1")
def test_an_endpoint_names_capability_schema_and_subject() -> None:
    answer = micro.document("$SRV.INFO", ABOUT, [served("models.list-all@2.13")])
    assert answer is not None
    (endpoint,) = answer["endpoints"]
    assert endpoint["name"] == "models-list-all-2-13"
    assert endpoint["subject"].startswith("hn.call.*.")
    assert endpoint["subject"].endswith(".abcdefgh.models.list-all.v2")
    assert endpoint["metadata"] == {
        "capability": "models.list-all@2.13",
        "schema_hash": "blake3:" + "0" * 64,
    }


@pytest.mark.parametrize("subject", ["$SRV.SCHEMA", "$SRV.ping", "$SRV.", "$SRV.KILL.rag.abcdefgh"])
def test_there_are_no_other_verbs(subject: str) -> None:
    assert micro.document(subject, ABOUT, []) is None


@pytest.mark.req("OPERATOR-3")
def test_statistics_count_time_and_codes() -> None:
    one = served()
    one.statistics.answered(3_000)
    one.statistics.failed(1_001, "timeout")
    answer = micro.document("$SRV.STATS", ABOUT, [one])
    assert answer is not None
    (endpoint,) = answer["endpoints"]
    assert endpoint["num_requests"] == 2
    assert endpoint["num_errors"] == 1
    assert endpoint["last_error"] == "timeout: rag.query@1.0"
    assert endpoint["processing_time"] == 4_001
    assert endpoint["average_processing_time"] == 2_000


@given(st.lists(st.tuples(st.integers(0, 10**12), st.booleans())))
def test_counts_never_disagree(calls: list[tuple[int, bool]]) -> None:
    one = served()
    for nanoseconds, fails in calls:
        if fails:
            one.statistics.failed(nanoseconds, "timeout")
        else:
            one.statistics.answered(nanoseconds)
    answer = micro.document("$SRV.STATS", ABOUT, [one])
    assert answer is not None
    adr32.check("STATS", answer)
    (endpoint,) = answer["endpoints"]
    took = sum(nanoseconds for nanoseconds, _ in calls)
    assert (endpoint["num_requests"], endpoint["processing_time"]) == (len(calls), took)
    assert endpoint["num_errors"] == sum(fails for _, fails in calls)
    assert endpoint["average_processing_time"] == took // max(1, len(calls))
    assert bool(endpoint["last_error"]) == bool(endpoint["num_errors"])


@pytest.mark.req("OPERATOR-4")
def test_no_answer_is_larger_than_64_kib() -> None:
    many = [served(f"{'long' * 20}.capability-{number}@1.0") for number in range(1_000)]
    for verb in VERBS:
        about = ABOUT._replace(name="n" * 64, version="1.2.3", description="d" * 10_000)
        answer = micro.document(f"$SRV.{verb}", about, many)
        assert answer is not None
        assert len(json.dumps(answer)) < 65_536
        assert len(answer.get("endpoints", ())) == (0 if verb == "PING" else micro.MOST_ENDPOINTS)


@pytest.mark.req("OPERATOR-4")
@pytest.mark.parametrize("reply", ["_INBOX_ops.a", "_INBOX_ops.Jf3k.QX-_1", "_INBOX_ops.a.b.c.d"])
def test_operators_are_answered(reply: str) -> None:
    assert micro.answerable(reply)


@pytest.mark.req("OPERATOR-4")
@pytest.mark.parametrize(
    "reply",
    [
        "",
        "_INBOX_ops",
        "_INBOX_ops.",
        "_INBOX_opsx.a",
        "_INBOX.a",
        "hn.rep.a.b",
        "_INBOX_ops.*",
        "_INBOX_ops.>",
        "_INBOX_ops.a b",
        "_INBOX_ops.a\r\nPUB",
        "_INBOX_ops..a",
        "_INBOX_ops.a.b.c.d.e",
        "_INBOX_ops." + "a" * 65,
        "$SYS.REQ.SERVER.PING",
    ],
)
def test_nobody_else_is_answered(reply: str) -> None:
    assert not micro.answerable(reply)


@pytest.mark.parametrize("version", ["0.1.0", "1.2.3-rc.1", "10.0.1+build.5"])
def test_a_name_and_version_that_the_tools_take(version: str) -> None:
    micro.check("my-service_2", version)


@pytest.mark.req("SERVICE-4")
@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("my.service", "1.0.0", "is no name of a service; use letters"),
        ("", "1.0.0", "is no name of a service"),
        ("x", "1.0", "write one such as 1.2.3"),
        ("x", "v1.0.0", "is no version of the service x"),
        ("x", "01.0.0", "is no version"),
    ],
)
def test_one_that_they_would_not_take_is_refused(name: str, version: str, said: str) -> None:
    with pytest.raises(HearthNetError, match=said) as caught:
        micro.check(name, version)
    assert caught.value.code == "bad_request"
