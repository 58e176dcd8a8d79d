"""What the server itself refuses to a member: subjects of others, inboxes of others, JetStream."""

from __future__ import annotations

import json

import nkeys
import pytest

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.protocol import subjects
from hearthnet.trust.keys import Identity, Login, signing_input, verify
from tests.attacks.attacker import LIST, LIST_BODY, Attacker, Raw
from tests.attacks.conftest import Victim

pytestmark = pytest.mark.asyncio
STREAMS = ("MARKET", "CHAINS", "AUDIT", "COMMUNITY", "COUNTERS", "KV_claims", "OBJ_blobs")


@pytest.mark.req("ATTACK-2")
@pytest.mark.parametrize("family", ["call", "ctl", "rep", "find", "adv", "event"])
async def test_a_member_cannot_publish_in_anothers_name(victim: Victim, family: str) -> None:
    raw = await victim.raw()
    subject = f"hn.{family}.{ids.token_form(victim.key('carol').node_id)}.x.abcdefgh.y"
    await raw.publish(subject, b"HN1 p\n{}\n{}")
    assert raw.refused(subject)
    await raw.close()


@pytest.mark.req("ATTACK-2")
async def test_a_member_cannot_make_another_node_publish_for_it(
    victim: Victim, mallory: Attacker, market: OfferView
) -> None:
    # The reply subject of the message names carol's answers: a responder that used it would speak there.
    carol = await victim.raw("carol")
    token = ids.token_form(victim.key("carol").node_id)
    await carol.subscribe(f"hn.rep.*.{token}.>")
    header = mallory.header(market, LIST, LIST_BODY)
    data = mallory.boxed(mallory.inner(header, LIST_BODY, signed=False), market)
    theirs = f"hn.rep.{ids.token_form(victim.node)}.{token}.abcdefgh.{header.id}"
    await mallory.peer.link.publish(mallory.subject(market, LIST), data, reply=theirs)
    assert await mallory.call(market, LIST, LIST_BODY) == "ok"
    await carol.settle()
    assert carol.heard == []
    await carol.close()


@pytest.mark.req("ATTACK-3")
@pytest.mark.parametrize(
    "subject",
    [
        "$JS.API.INFO",
        "$JS.API.STREAM.LIST",
        "$JS.API.STREAM.CREATE.MINE",
        "$KV.claims.x",
        "$O.blobs.M.x",
        "mk.post.x.y",
        "ct.x.calls",
        "au.entry",
        "cm.event.x.1",
        "$SYS.REQ.SERVER.PING",
        "$JS.API.DIRECT.GET.MARKET",
        *(f"$JS.API.STREAM.PURGE.{stream}" for stream in STREAMS),
    ],
)
async def test_a_member_cannot_use_jetstream(victim: Victim, subject: str) -> None:
    raw = await victim.raw()
    inbox = f"_INBOX.{ids.token_form(victim.key('mallory').node_id)}.1"
    await raw.subscribe(inbox)
    await raw.publish(subject, json.dumps({"name": "MINE", "subjects": ["mine.>"]}).encode(), reply=inbox)
    assert raw.refused(subject)
    assert [message for message in raw.heard if message.data] == []
    await raw.close()


@pytest.mark.req("ATTACK-4")
@pytest.mark.parametrize(
    "pattern", ["hn.rep.*.{other}.>", "hn.call.*.{other}.>", "hn.ctl.*.{other}.>", "_INBOX.{other}.>"]
)
async def test_a_member_cannot_read_what_is_for_another(victim: Victim, pattern: str) -> None:
    raw = await victim.raw()
    subject = pattern.format(other=ids.token_form(victim.key("carol").node_id))
    await raw.subscribe(subject)
    assert raw.refused(subject)
    await raw.close()


@pytest.mark.req("ATTACK-4")
@pytest.mark.parametrize(
    "subject", [">", "*.>", "hn.>", "hn.rep.>", "hn.call.>", "_INBOX.>", "$JS.>", "$SYS.>", "mk.>"]
)
async def test_a_member_cannot_read_everything(victim: Victim, subject: str) -> None:
    raw = await victim.raw()
    await raw.subscribe(subject)
    assert raw.refused(subject)
    await raw.close()


@pytest.mark.req("ATTACK-1")
async def test_an_identity_key_is_no_login(victim: Victim) -> None:
    # If it were, every server that a node connects to could have it sign bytes of the server's choice.
    identity = victim.key("mallory")
    seed_as_login = _login_of_the_identity_key(identity)
    with pytest.raises(Exception, match=r"(?i)authorization violation"):
        await Raw.connect(victim.url, seed_as_login)
    await (await Raw.connect(victim.url, identity.login())).close()
    assert seed_as_login.public != identity.login().public


def _login_of_the_identity_key(identity: Identity) -> Login:
    return Login(ids.unb64(identity.to_text().split()[1]))


@pytest.mark.req("ATTACK-1")
async def test_what_a_login_signs_is_no_signature_of_the_node(victim: Victim) -> None:
    identity = victim.key("mallory")
    chosen_by_the_server = signing_input("frame", b"anything")
    signer = nkeys.from_seed(bytearray(identity.login().seed))
    signature = bytes(signer.sign(chosen_by_the_server))
    assert not verify(identity.node_id, "frame", b"anything", signature)
    assert verify(identity.node_id, "frame", b"anything", identity.sign("frame", b"anything"))


@pytest.mark.req("ATTACK-2")
async def test_a_call_on_anothers_subject_is_refused(victim: Victim, market: OfferView) -> None:
    # It is made of ids that everybody knows.
    carol = victim.key("carol").node_id
    subject = subjects.call(carol, market.node, market.offer.instance, parse_capability(LIST))
    raw = await victim.raw()
    await raw.publish(subject, b"x")
    assert raw.refused(subject)
    await raw.close()
