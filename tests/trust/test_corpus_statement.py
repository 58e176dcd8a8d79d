"""What a home says about a corpus to those that keep a copy of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.corpus_statement import (
    CorpusStatement,
    checked_statement,
    digest_of,
    sign_statement,
    version_of,
)
from hearthnet.trust.keys import Identity

KITCHEN, OTHER = Identity.generate(), Identity.generate()
MANUALS = "manuals"
STATED = CorpusStatement(
    community="c", home=KITCHEN.node_id, corpus=MANUALS, copies=True, count=0, digest="", time=1
)


def json_of(statement: CorpusStatement, signer: Identity = KITCHEN) -> dict[str, Any]:
    """The statement as JSON, really signed."""
    signed: dict[str, Any] = msgspec.to_builtins(sign_statement(statement, signer))
    return signed


@pytest.mark.req("MIRROR-8", "ATTACK-132")
@pytest.mark.parametrize(
    "forged",
    [
        json_of(STATED, OTHER),
        json_of(msgspec.structs.replace(STATED, home=OTHER.node_id), OTHER),
        json_of(msgspec.structs.replace(STATED, corpus="other")),
        json_of(msgspec.structs.replace(STATED, community="d")),
        json_of(msgspec.structs.replace(STATED, v=2)),
        {**json_of(STATED), "copies": False},
        {**json_of(STATED), "digest": "blake3:" + "0" * 64},
        {**json_of(STATED), "more": 1},
        {},
        "",
    ],
)
def test_a_statement_that_its_home_did_not_sign_is_refused(forged: Any) -> None:
    assert checked_statement(json_of(STATED), "c", KITCHEN.node_id, MANUALS).copies is True
    with pytest.raises(HearthNetError) as caught:
        checked_statement(forged, "c", KITCHEN.node_id, MANUALS)
    assert caught.value.code == "invalid_signature"


@pytest.mark.req("MIRROR-8")
def test_a_version_is_named_by_the_documents_in_their_order() -> None:
    one, two = {"doc_cid": "a", "title": "Boiler"}, {"doc_cid": "b", "title": "Boiler"}
    digests = {digest_of(documents) for documents in ([], [one], [one, two], [two, one])}
    assert len(digests) == 4
    assert len({version_of(digest) for digest in digests}) == 4
    assert version_of(digest_of([one])) == digest_of([dict(reversed(one.items()))])[7:19]
