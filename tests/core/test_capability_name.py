"""Names of capabilities and how versions fit.

See: docs/protocol/README.md#capability-names, docs/protocol/README.md#versioning.
"""

from __future__ import annotations

import pytest

from hearthnet.core.capability_name import Capability, parse_capability, split_name
from hearthnet.core.errors import HearthNetError


@pytest.mark.req("WIRE-14")
@pytest.mark.parametrize(
    "text", ["rag.query@0.0", "rag.query@1.0", "llm.chat@2.10", "rag.list_corpora@1.0", "a.b-c.d@0.1"]
)
def test_a_capability_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_capability(text)) == text


def test_the_version_may_be_left_out_only_where_that_is_said() -> None:
    assert split_name("rag.query") == ("rag.query", None)
    assert split_name("rag.query@1.2") == ("rag.query", (1, 2))
    with pytest.raises(HearthNetError, match="needs its version"):
        parse_capability("rag.query")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rag",
        "rag.",
        "Rag.query",
        "rag.query@1",
        "rag.query@1.0 ",
        "rag.query@1.0\n",
        "rag.query@01.0",
        "rag.query@1.00",
        "rag.query@1.00000",
        "rag.query@\u0661.\u0660",
        "r\u0430g.query",
        "rag.*",
        "rag.>",
        "rag.query.v1 x",
        "_all.v0",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(HearthNetError, match="not a capability") as caught:
        split_name(text)
    assert caught.value.code == "bad_request"


@pytest.mark.req("WIRE-14")
def test_a_name_of_more_than_140_characters_is_refused() -> None:
    longest = f"a.{'b' * 134}@1.0"
    assert str(parse_capability(longest)) == longest
    with pytest.raises(HearthNetError, match="not a capability"):
        parse_capability(f"a{longest}")


@pytest.mark.req("WIRE-14")
@pytest.mark.parametrize(
    ("offered", "serves"), [("1.0", False), ("1.1", True), ("1.2", True), ("2.1", False), ("0.9", False)]
)
def test_an_offer_serves_the_same_major_from_that_minor_on(offered: str, serves: bool) -> None:
    assert parse_capability(f"rag.query@{offered}").serves(Capability("rag.query", 1, 1)) is serves
    assert not Capability("rag.ingest", 1, 1).serves(Capability("rag.query", 1, 1))
