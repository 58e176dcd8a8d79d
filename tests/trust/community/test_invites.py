"""Invites as texts, and what a node that is asked to let somebody in answers (docs/decisions/0040)."""

from __future__ import annotations

import blake3
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document, text_armor
from hearthnet.trust.community import commands, events, invites, roster
from hearthnet.trust.community.invites import InviteText
from hearthnet.trust.community.roster import Policy, Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS, NOW, act, raise_to, take_in
from tests.trust.town import (
    EVE,
    MALLORY,
    MAX,
    NORA,
    QUINN,
    ROOT,
    SAM,
    TILDA,
    UMA,
    removal,
    town,
    with_events,
)

KEY = Identity(bytes([99]) * 32)
TEXT = InviteText(
    community_id=ROOT.node_id,
    seed=ids.b64(bytes([99]) * 32),
    address="192.168.1.20:7422",
    fingerprint="0f" * 32,
    inviter=MAX.node_id,
    name="Ahornweg 7 · Küche",
    expires_at=NOW + DAY_MS,
)


def open_invite(held: Roster, by: Identity = MAX, invitee: str = "") -> Roster:
    """`held` with an open invite."""
    event = commands.CommunityAuthor(held, by).invite(
        KEY, display_name="x", expires_at=NOW + DAY_MS, now_ms=NOW, invitee=invitee
    )
    return with_events(held, event)


@pytest.mark.req("COMM-9")
def test_an_invite_is_read_as_it_was_written() -> None:
    text = TEXT.encode()
    assert text.startswith("hninvite://v1/")
    assert invites.decode(text) == TEXT
    assert invites.decode(text).key().node_id == KEY.node_id
    assert len(text) < 700
    assert TEXT.seed not in repr(TEXT)
    bare = msgspec.structs.replace(TEXT, fingerprint="", address="a:1", name="")
    assert invites.decode(bare.encode()) == bare


@pytest.mark.req("COMM-9")
@given(st.integers(0, 10**6), st.text(max_size=3))
def test_a_damaged_invite_is_told_in_one_line_and_never_taken_for_another(at: int, put: str) -> None:
    text = TEXT.encode()
    at %= len(text)
    altered = text[:at] + put + text[at + max(1, len(put)) :]
    if altered == text:
        return
    with pytest.raises(HearthNetError, match=r"no invite|is damaged") as caught:
        invites.decode(altered)
    assert caught.value.code == "bad_request"
    assert "\n" not in caught.value.message
    assert TEXT.seed not in caught.value.message


@pytest.mark.req("COMM-9")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is no invite"),
        ("hello", "this is no invite"),
        ("hninvite://v2/abc.12345678", "this is no invite"),
        ("hninvite://v1/", "the invite is damaged"),
        ("hninvite://v1/.", "the invite is damaged"),
        ("hninvite://v1/Z.0" + "0" * 3000, "this is no invite"),
    ],
    ids=range(6),
)
def test_what_is_no_invite_is_refused(text: str, said: str) -> None:
    with pytest.raises(HearthNetError, match=said) as caught:
        invites.decode(text)
    assert caught.value.code == "bad_request"


@pytest.mark.req("COMM-9")
def test_an_invite_that_names_a_member_twice_is_refused() -> None:
    good = canonical_json(msgspec.to_builtins(TEXT))

    def armored(data: bytes) -> str:
        return f"{invites.SCHEME}{ids.b64(data)}.{blake3.blake3(data).hexdigest()[:8]}"

    assert invites.decode(armored(good)) == TEXT
    with pytest.raises(HearthNetError, match="the invite is damaged"):
        invites.decode(armored(good.replace(b'{"a"', b'{"a":"other:1","a"')))


@pytest.mark.req("COMM-9", "VERSION-5")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"c": "ed25519:x"}, "'ed25519:x' is not a node id"),
        ({"i": "max"}, "'max' is not a node id"),
        ({"k": ids.b64(bytes(31))}, "an identity seed has 32 bytes"),
        ({"k": "?"}, "not base64url"),
        ({"t": "0F" * 32}, "the invite is damaged"),
        ({"a": ""}, "the invite is damaged"),
        ({"x": -1}, "the invite is damaged"),
        ({"more": 1}, "the invite is of a later version; upgrade"),
    ],
    ids=range(8),
)
def test_a_whole_text_that_says_nothing_usable_is_refused(changes: dict[str, object], said: str) -> None:
    members = {**msgspec.to_builtins(TEXT), **changes}
    with pytest.raises(HearthNetError, match=said) as caught:
        invites.decode(text_armor.armor(invites.SCHEME, members))
    assert caught.value.code == "bad_request"


@pytest.mark.req("COMM-3")
def test_a_newcomer_asks_and_is_let_in() -> None:
    held = open_invite(town())
    asked = invites.ask(held, KEY, EVE, "Eve", NOW)
    events = invites.admit(held, MAX, asked, NOW)
    assert events[0] == asked
    inside = roster.merge(held, events)
    entry = inside.member(EVE.node_id)
    assert entry is not None
    assert (entry.level, entry.display_name, entry.login) == ("member", "Eve", EVE.login().public)
    assert entry.added_at == "2026-11-21T20:15:00Z"
    assert inside.invites == ()


@pytest.mark.req("COMM-3")
def test_who_asks_hears_at_once_that_its_invite_is_no_good() -> None:
    held = open_invite(town())
    for now, roster_, code in (
        (NOW + DAY_MS, held, "expired"),
        (NOW, town(), "unauthorized"),
        (
            NOW,
            with_events(held, commands.CommunityAuthor(held, MAX).withdraw(held.invites[0].event_id, NOW)),
            "unauthorized",
        ),
    ):
        with pytest.raises(HearthNetError, match="ask for a new one") as caught:
            invites.ask(roster_, KEY, EVE, "Eve", now)
        assert caught.value.code == code


@pytest.mark.req("COMM-3")
def test_an_invite_lets_one_in_and_not_for_ever() -> None:
    held = open_invite(town())
    asked = invites.ask(held, KEY, EVE, "Eve", NOW)
    second = invites.ask(held, KEY, MALLORY, "Mallory", NOW)
    inside = roster.merge(held, invites.admit(held, MAX, asked, NOW))
    withdrawn = with_events(held, commands.CommunityAuthor(held, MAX).withdraw(held.invites[0].event_id, NOW))
    for roster_, event, now, code, said in (
        (inside, second, NOW, "unauthorized", "was used or withdrawn"),
        (inside, asked, NOW, "unauthorized", "a member already"),
        (withdrawn, asked, NOW, "unauthorized", "was used or withdrawn"),
        (town(), asked, NOW, "unauthorized", "was used or withdrawn"),
        (held, asked, NOW + DAY_MS, "expired", "has expired"),
        (held, held.events[-1], NOW, "bad_request", "no request to join"),
        (held, msgspec.structs.replace(asked, lamport=99), NOW, "invalid_signature", "not signed"),
    ):
        with pytest.raises(HearthNetError, match=said) as caught:
            invites.admit(roster_, MAX, event, now)
        assert caught.value.code == code


@pytest.mark.req("COMM-3")
def test_an_altered_invite_opens_nothing() -> None:
    held = open_invite(town())
    asked = invites.ask(held, KEY, EVE, "Eve", NOW)
    unsigned = "the request to join is not signed by the invite's key"
    for changes, code, said in (
        ({"invite_key": MALLORY.node_id}, "invalid_signature", unsigned),
        ({"invite_event_hash": town().events[0].hash}, "invalid_signature", unsigned),
        (
            {"member": msgspec.to_builtins(events.entry_of(MALLORY, "x"))},
            "bad_request",
            "a node joins by its own event",
        ),
    ):
        event = msgspec.structs.replace(asked, data={**asked.data, **changes})
        with pytest.raises(HearthNetError, match=said) as caught:
            invites.admit(held, MAX, signed_document.sign(event, EVE, events.PURPOSE), NOW)
        assert caught.value.code == code
    bound = open_invite(town(), invitee=EVE.node_id)
    foreign = invites.ask(bound, KEY, MALLORY, "Mallory", NOW)
    with pytest.raises(HearthNetError, match="for another node") as caught:
        invites.admit(bound, MAX, foreign, NOW)
    assert caught.value.code == "unauthorized"


@pytest.mark.req("COMM-3")
def test_who_may_not_invite_lets_nobody_in() -> None:
    held = open_invite(town(), by=TILDA)
    asked = invites.ask(held, KEY, EVE, "Eve", NOW)
    strict = with_events(
        held, commands.CommunityAuthor(held, ROOT).set_policy(Policy(default_member_can_invite=False), NOW)
    )
    with pytest.raises(HearthNetError, match="takes level trusted") as caught:
        invites.admit(strict, MAX, asked, NOW)
    assert caught.value.code == "unauthorized"
    inside = roster.merge(strict, invites.admit(strict, TILDA, asked, NOW))
    assert inside.level(EVE.node_id) == "member"


@pytest.mark.req("COMM-8")
def test_a_revoked_node_is_told_that_it_is() -> None:
    out = with_events(town(), removal(town(), QUINN, TILDA, SAM, UMA))
    held = open_invite(out, by=SAM)
    asked = invites.ask(held, KEY, TILDA, "Tilda", NOW)
    with pytest.raises(HearthNetError, match="was put out") as caught:
        invites.admit(held, SAM, asked, NOW)
    assert caught.value.code == "revoked"
    named = open_invite(out, by=SAM, invitee=TILDA.node_id)
    asked = invites.ask(named, KEY, TILDA, "Tilda", NOW)
    assert roster.merge(named, invites.admit(named, SAM, asked, NOW)).level(TILDA.node_id) == "member"
    weak = open_invite(out, by=MAX, invitee=TILDA.node_id)
    asked = invites.ask(weak, KEY, TILDA, "Tilda", NOW)
    with pytest.raises(HearthNetError, match="comes back only"):
        invites.admit(weak, MAX, asked, NOW)


@pytest.mark.req("COMM-3")
def test_a_request_that_does_not_follow_the_newcomers_events_is_refused() -> None:
    held = open_invite(town())
    asked = invites.ask(held, KEY, EVE, "Eve", NOW)
    content = asked.content
    assert isinstance(content, events.Joined)
    later = act(held, EVE, events.JOINED, content, (2, asked.hash, asked.lamport + 1))
    with pytest.raises(HearthNetError, match="does not follow") as caught:
        invites.admit(held, MAX, later, NOW)
    assert caught.value.code == "unauthorized"
    assert held.missing_before([later]) == (later,)
    assert [one.hash for one in invites.admit(held, MAX, asked, NOW)][:1] == [asked.hash]


@pytest.mark.req("ATTACK-36")
def test_a_line_lets_in_five_a_day_and_a_trusted_member_any_number() -> None:
    """Max lets in Eve; both together make it five, until a day has passed."""
    held = take_in(town(), MAX, EVE, "eve", NOW)
    newcomers = iter([Identity(bytes([number]) * 32) for number in range(120, 140)])
    for by in (EVE, MAX, EVE, MAX):
        held = take_in(held, by, next(newcomers), "newcomer", NOW)
    for by, most in ((EVE, 2), (MAX, 5)):
        with pytest.raises(HearthNetError, match=f"have let in {most} nodes within a day") as caught:
            take_in(held, by, next(newcomers), "newcomer", NOW + DAY_MS - 1)
        assert caught.value.code == "unauthorized"
    for by in (TILDA, TILDA, TILDA, TILDA, TILDA, TILDA, NORA):
        held = take_in(held, by, next(newcomers), "newcomer", NOW)
    policy = msgspec.structs.replace(Policy(), admissions_per_day=6)
    larger = with_events(held, commands.CommunityAuthor(held, ROOT).set_policy(policy, NOW))
    assert take_in(larger, MAX, next(newcomers), "newcomer", NOW)
    assert take_in(held, MAX, next(newcomers), "newcomer", NOW + DAY_MS)


@pytest.mark.req("ATTACK-36")
def test_a_members_invite_is_honoured_by_its_own_home_alone() -> None:
    """Else each trusted home would let in any number under a plain member's invites."""
    held = open_invite(town())
    asked = invites.ask(held, KEY, EVE, "Eve", NOW)
    for provider in (TILDA, NORA):
        with pytest.raises(HearthNetError, match="honoured by its own home") as caught:
            invites.admit(held, provider, asked, NOW)
        assert caught.value.code == "unauthorized"


@pytest.mark.req("ATTACK-36")
def test_admissions_dated_in_the_future_use_up_no_day() -> None:
    held = town()
    for number in range(120, 125):
        held = take_in(held, MAX, Identity(bytes([number]) * 32), "newcomer", NOW + 300 * DAY_MS)
    assert take_in(held, MAX, EVE, "eve", NOW)


@pytest.mark.req("ATTACK-36")
def test_whom_a_trusted_member_invited_stays_a_line_of_its_own_when_that_one_leaves() -> None:
    held = take_in(take_in(town(), TILDA, EVE, "eve", NOW), TILDA, MALLORY, "mallory", NOW)
    held = with_events(held, removal(held, ROOT, TILDA))
    assert [held.line(one.node_id) for one in (EVE, MALLORY)] == [(EVE.node_id,), (MALLORY.node_id,)]


@pytest.mark.req("ATTACK-36")
def test_a_policy_names_the_events_of_members_alone() -> None:
    """Whoever holds an invite's key may ask under any number of names."""
    held = open_invite(town())
    asked = invites.ask(held, KEY, EVE, "Eve", NOW)
    policy = commands.CommunityAuthor(with_events(held, asked), ROOT).set_policy(Policy(), NOW).content
    assert isinstance(policy, events.PolicyUpdated)
    assert {MAX.node_id, ROOT.node_id} < policy.heads.keys()
    assert EVE.node_id not in policy.heads


@pytest.mark.req("ATTACK-36")
def test_a_line_ends_below_a_trusted_member() -> None:
    held = take_in(take_in(town(), MAX, EVE, "eve", NOW), EVE, MALLORY, "mallory", NOW)
    eve, mallory, most = EVE.node_id, MALLORY.node_id, MAX.node_id
    assert held.line(mallory) == (mallory, eve, most)
    assert held.came_by(most) == (eve, mallory)
    assert held.line(TILDA.node_id) == (TILDA.node_id,)
    raised = raise_to(held, TILDA, EVE, "trusted", NOW)
    assert raised.line(mallory) == (mallory,)
    assert raised.came_by(most) == ()
    out = with_events(held, removal(held, ROOT, EVE))
    assert out.line(mallory) == (mallory, eve, most), "who was put out still answers for it"
    assert out.came_by(most) == (mallory,)


@pytest.mark.req("ATTACK-36")
def test_accounts_are_kept_of_members_and_open_invites_alone() -> None:
    held = open_invite(take_in(town(), MAX, EVE, "eve", NOW), EVE)
    counted = {EVE: EVE.node_id, KEY: f"{MAX.node_id}//invites", TILDA: TILDA.node_id}
    for _ in range(2):
        assert {one: held.account(one.node_id) for one in counted} == counted
        assert held.account(MALLORY.node_id) == MALLORY.node_id
        assert [held.answerable(one.node_id) for one in (EVE, KEY)] == [MAX.node_id] * 2
    assert held._accounts.keys() == {one.node_id for one in counted}, "strangers are without number"


@pytest.mark.req("PERSON-31", "ATTACK-60")
def test_a_sealed_key_opens_with_its_text_at_its_node_alone() -> None:
    """Who has read the text later, or has stolen another node, opens nothing that was recorded."""
    key, newcomer = Identity.generate(), Identity.generate()
    text = msgspec.structs.replace(TEXT, person=key.node_id)
    other = msgspec.structs.replace(text, seed=ids.b64(bytes(32)))

    def sealed(content: str) -> str:
        secret = ids.unb64(text.seed)
        return ids.b64(MAX.seal_to(newcomer.node_id, text.key_purpose, content.encode("ascii"), secret))

    good = sealed(key.to_text())
    assert text.opened_key(newcomer, good).node_id == key.node_id
    for with_text, own, data in (
        (text, Identity.generate(), good),
        (other, newcomer, good),
        (msgspec.structs.replace(text, inviter=NORA.node_id), newcomer, good),
        (text, newcomer, ids.b64(ids.unb64(good)[:30])),
    ):
        with pytest.raises(HearthNetError) as refused:
            with_text.opened_key(own, data)
        assert refused.value.code == "invalid_signature"
    with pytest.raises(HearthNetError) as refused:
        text.opened_key(newcomer, sealed("no key"))
    assert refused.value.code == "bad_request"


@pytest.mark.req("PERSON-31")
def test_texts_of_devices_and_invites_are_told_apart() -> None:
    key = Identity.generate()
    plain = InviteText(
        community_id=key.node_id,
        seed=ids.b64(bytes(32)),
        address="127.0.0.1:1",
        fingerprint="",
        inviter=key.node_id,
        name="x",
        expires_at=1,
    )
    device = msgspec.structs.replace(plain, person=key.node_id)
    assert invites.decode(plain.encode()) == plain
    assert invites.decode_device(device.encode()) == device
    for read, text in ((invites.decode, device), (invites.decode_device, plain)):
        with pytest.raises(HearthNetError) as refused:
            read(text.encode())
        assert refused.value.code == "bad_request"
        swapped = (
            text.encode()
            .replace("hndevice", "hnXX")
            .replace("hninvite", "hndevice")
            .replace("hnXX", "hninvite")
        )
        with pytest.raises(HearthNetError):
            read(swapped)


@pytest.mark.req("DOOR-10")
def test_an_invite_names_further_doors() -> None:
    more = (("attic:7422", "1f" * 32), ("127.0.0.1:7422", ""))
    invite = msgspec.structs.replace(TEXT, doors=more)
    assert invites.decode(invite.encode()) == invite
    assert invite.places == ((TEXT.address, TEXT.fingerprint), *more)
    assert TEXT.places == ((TEXT.address, TEXT.fingerprint),)
    assert "d" not in msgspec.to_builtins(TEXT), "without any it is as earlier versions read it"
    for doors in ((("attic:7422", "1f"),), (("x", ""),), more * 2):
        with pytest.raises(HearthNetError) as caught:
            invites.decode(msgspec.structs.replace(TEXT, doors=doors).encode())
        assert caught.value.code == "bad_request"
