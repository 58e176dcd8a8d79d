"""Effects that nobody said yes to: approvals left out, bent, stolen or used again; grants used up."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.times import now_ms
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.approval import ANY_PROVIDER, PURPOSE, Approval
from hearthnet.trust.authorization.grant import PURPOSE as GRANT_PURPOSE
from hearthnet.trust.authorization.grant import Grant
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import LIST, POST, Attacker, post_body
from tests.attacks.conftest import Victim
from tests.helpers.full_house import UNLIMITED
from tests.helpers.mesh import start_mesh
from tests.helpers.neighbourhood import Neighbourhood
from tests.helpers.service_processes import processes_of_service

pytestmark = pytest.mark.asyncio
RUN = ids.new_ulid()
MINUTE = 60_000


class Lent:
    """What carol lent mallory: a token; and, which mallory has not, the key of carol to say yes with."""

    def __init__(self, victim: Victim, holder: Attacker, **claims: Any) -> None:
        self.carol, self._holder, self._victim = victim.key("carol"), holder, victim
        limits = {name: claims.pop(name) for name in ("max_effects", "max_calls_total") if name in claims}
        self.token = mint(
            self.carol,
            subject=holder.peer.node_id,
            audience=victim.community,
            scope=Scope(capabilities=(POST,), **limits),
            now_ms=now_ms(),
            ttl_seconds=300,
            **claims,
        )
        self.run = claims.get("run", "")

    def yes(self, body: dict[str, Any], signer: Identity | None = None, **changes: Any) -> dict[str, Any]:
        """An approval of exactly this call, less what the attack changes, as it stands in a header."""
        now, key = now_ms(), signer or self.carol
        fields: dict[str, Any] = {
            "id": ids.new_ulid(),
            "community": self._victim.community,
            "approver": key.node_id,
            "actor": self._holder.peer.node_id,
            "provider": self._victim.node,
            "capability": POST,
            "arguments_digest": digest(body),
            "idempotency_key": body["input"]["client_id"],
            "run": self.run,
            "tool_call_id": "call_1",
            "time": now,
            "expires": now + MINUTE,
        }
        approval = signed_document.sign(Approval(**{**fields, **changes}), key, PURPOSE)
        made: dict[str, Any] = msgspec.to_builtins(approval)
        return made

    def grant(self, at: str, signer: Identity | None = None, **changes: Any) -> dict[str, Any]:
        """A standing grant of carol's for mallory, less what the attack changes."""
        now, key = now_ms(), signer or self.carol
        fields: dict[str, Any] = {
            "id": ids.new_ulid(),
            "community": self._victim.community,
            "approver": key.node_id,
            "actor": self._holder.peer.node_id,
            "provider": at,
            "capability": POST,
            "params_constraints": {"input.category": ["offer"]},
            "tool_hash": contracts().find("market.post", (1, 0)).schema_hash,
            "max_uses": 3,
            "time": now,
            "expires": now + MINUTE,
        }
        grant = signed_document.sign(Grant(**{**fields, **changes}), key, GRANT_PURPOSE)
        made: dict[str, Any] = msgspec.to_builtins(grant)
        return made


@pytest.fixture
def lent(victim: Victim, mallory: Attacker) -> Lent:
    """A run token."""
    return Lent(victim, mallory, run=RUN)


@pytest.mark.req("ATTACK-15")
async def test_an_approved_call_has_its_effect_once(mallory: Attacker, market: OfferView, lent: Lent) -> None:
    body = post_body("Approved by carol")
    given = {"token": lent.token, "run": RUN, "approval": lent.yes(body)}
    codes = Counter([await mallory.call(market, POST, body, **given) for _ in range(2)])
    codes.update(await asyncio.gather(*(mallory.call(market, POST, body, **given) for _ in range(2))))
    assert codes == {"ok": 4}
    assert await mallory.posted("Approved by carol") == 1


@pytest.mark.req("ATTACK-15")
async def test_no_effect_without_an_approval(
    victim: Victim, mallory: Attacker, market: OfferView, lent: Lent
) -> None:
    body = post_body("Without an approval")
    assert await mallory.call(market, POST, body, token=lent.token, run=RUN) == "unauthorized"
    # That there is no run changes nothing: a token is enough for a yes to be due.
    runless = Lent(victim, mallory)
    assert await mallory.call(market, POST, body, token=runless.token) == "unauthorized"
    assert await mallory.call(market, POST, body, token=lent.token) == "token_scope_insufficient"
    assert await mallory.call(market, POST, body, token=lent.token, approval=lent.yes(body, run="")) == (
        "token_scope_insufficient"
    )
    assert await mallory.posted("Without an approval") == 0


@pytest.mark.req("ATTACK-15")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"arguments_digest": digest({"params": {}, "input": {}})}, "unauthorized"),
        ({"run": ids.new_ulid()}, "unauthorized"),
        ({"idempotency_key": ids.new_ulid()}, "unauthorized"),
        ({"capability": "market.expire@1.0"}, "unauthorized"),
        ({"provider": Identity.generate().node_id}, "unauthorized"),
        ({"provider": ANY_PROVIDER}, "unauthorized"),
        ({"actor": Identity.generate().node_id}, "unauthorized"),
        ({"community": Identity.generate().node_id}, "unauthorized"),
        ({"v": 2}, "unauthorized"),
        ({"via": "gateway"}, "unauthorized"),
        ({"time": 1, "expires": 2}, "expired"),
        ({"expires": now_ms() + 10 * 365 * 86_400_000}, "expired"),
    ],
)
async def test_an_approval_of_something_else_is_none(
    mallory: Attacker, market: OfferView, lent: Lent, changes: dict[str, Any], code: str
) -> None:
    body = post_body("Never approved")
    approval = lent.yes(body, **changes)
    assert await mallory.call(market, POST, body, token=lent.token, run=RUN, approval=approval) == code
    assert await mallory.posted("Never approved") == 0


@pytest.mark.req("ATTACK-15")
async def test_an_approval_is_for_one_tool_call(mallory: Attacker, market: OfferView, lent: Lent) -> None:
    # Another tool call of the run has another client id: the same words are another request.
    first = post_body("The same words")
    approval = lent.yes(first)
    given = {"token": lent.token, "run": RUN, "approval": approval}
    assert await mallory.call(market, POST, first, **given) == "ok"
    again = post_body("The same words")
    assert await mallory.call(market, POST, again, **given) == "unauthorized"
    other = {**first, "input": {**first["input"], "body": "Other words under the same key."}}
    assert await mallory.call(market, POST, other, **given) == "unauthorized"
    assert await mallory.posted("The same words") == 1


@pytest.mark.req("ATTACK-15")
async def test_the_holder_of_a_token_says_no_yes_itself(
    mallory: Attacker, market: OfferView, lent: Lent
) -> None:
    body, own = post_body("Approved by mallory"), mallory.peer.identity
    for approval, code in (
        (lent.yes(body, own), "unauthorized"),
        (lent.yes(body, own, approver=lent.carol.node_id), "invalid_signature"),
        ({**lent.yes(body), "signature": ""}, "invalid_signature"),
        ({**lent.yes(body), "unknown": 1}, "bad_request"),
    ):
        assert await mallory.call(market, POST, body, token=lent.token, run=RUN, approval=approval) == code
    grant = lent.grant(market.node, own)
    given = {"token": lent.token, "run": RUN, "grant": grant, "use": 1}
    assert await mallory.call(market, POST, body, **given) == "unauthorized"
    assert await mallory.posted("Approved by mallory") == 0


@pytest.mark.req("ATTACK-16")
async def test_an_executor_stays_inside_its_run_token(
    mallory: Attacker, market: OfferView, lent: Lent
) -> None:
    for capability, body in (
        (LIST, {"params": {}, "input": {}}),
        ("market.search@1.0", {"params": {}, "input": {"query": "x"}}),
    ):
        given = {"token": lent.token, "run": RUN}
        assert await mallory.call(market, capability, body, **given) == "token_scope_insufficient"
    other_run = post_body("In another run")
    assert await mallory.call(market, POST, other_run, token=lent.token, run=ids.new_ulid()) == (
        "token_scope_insufficient"
    )
    assert await mallory.posted("In another run") == 0


@pytest.mark.req("ATTACK-17")
async def test_a_gateway_cannot_approve_for_a_guest_with_a_key(
    victim: Victim, mallory: Attacker, market: OfferView
) -> None:
    guest = Identity.generate()
    session = Lent(victim, mallory, principal="guest-1", cnf=guest.node_id)
    gateway = mallory.peer.identity
    body = post_body("From a guest with a key")
    for approval, code in (
        (session.yes(body, gateway), "unauthorized"),
        (session.yes(body, gateway, via="gateway"), "unauthorized"),
        (session.yes(body, gateway, approver=guest.node_id), "invalid_signature"),
        (session.yes(body), "unauthorized"),
        (session.yes(body, guest, via="gateway"), "unauthorized"),
        (session.yes(body, guest), "ok"),
    ):
        assert await mallory.posted("From a guest with a key") == 0
        assert await mallory.call(market, POST, body, token=session.token, approval=approval) == code
    assert await mallory.posted("From a guest with a key") == 1


@pytest.mark.req("ATTACK-17")
async def test_a_gateway_acts_for_a_keyless_guest_within_its_effects(
    victim: Victim, mallory: Attacker, market: OfferView
) -> None:
    session = Lent(victim, mallory, principal="guest-2", max_effects=2)
    gateway, codes = mallory.peer.identity, []
    for _ in range(4):
        body = post_body("From a guest without a key")
        approval = session.yes(body, gateway, via="gateway")
        codes += [
            await mallory.call(market, POST, body, token=session.token, approval=approval) for _ in range(2)
        ]
    assert codes == ["ok"] * 4 + ["token_scope_insufficient"] * 4
    assert await mallory.posted("From a guest without a key") == 2


@pytest.mark.req("ATTACK-18")
async def test_each_use_of_a_grant_counts_once(mallory: Attacker, market: OfferView, lent: Lent) -> None:
    grant = lent.grant(market.node)
    given = {"token": lent.token, "run": RUN, "grant": grant}
    first = post_body("Under a standing grant")
    assert await mallory.call(market, POST, first, **given, use=1) == "ok"
    assert await mallory.call(market, POST, first, **given, use=1) == "ok"
    for use in (1, 4, 0):
        code = await mallory.call(market, POST, post_body("Once too often"), **given, use=use)
        assert code == "unauthorized", use
    racers = [post_body("Several at once") for _ in range(2)]
    codes = Counter(
        await asyncio.gather(*(mallory.call(market, POST, body, **given, use=2) for body in racers))
    )
    assert codes == {"ok": 1, "unauthorized": 1}
    counts = [await mallory.posted(body["input"]["title"]) for body in (first, racers[0])]
    assert (counts, await mallory.posted("Once too often")) == ([1, 1], 0)


@pytest.mark.req("ATTACK-41")
async def test_one_yes_has_its_effect_at_the_home_that_it_names(tmp_path: Path) -> None:
    """Each home has a market of its own: a yes for any of them would be a post at every one."""
    mesh = await start_mesh(tmp_path, "carol", "mallory")
    carol, own = mesh.others
    members = {"carol": carol, "mallory": own}
    victim = Victim(mesh.home, mesh.server.url, mesh.identity, Neighbourhood(mesh.home, members))
    for home in (mesh.home, mesh.guest):
        home.config_file.write_text(UNLIMITED)
    with mesh.published(), mesh.published(at=mesh.guest):
        async with (
            await mesh.bus("mallory", at=own) as bus,
            processes_of_service(bus, mesh.home, POST) as here,
            processes_of_service(bus, mesh.guest, POST) as there,
        ):
            mallory, body = Attacker(bus), post_body("Once")
            lent = Lent(victim, mallory, run=RUN)
            views = [*here.views, *there.views]
            for provider, codes in (
                (ANY_PROVIDER, ["unauthorized"] * 2),
                (mesh.identity.node_id, ["ok", "unauthorized"]),
            ):
                given = {"token": lent.token, "run": RUN, "approval": lent.yes(body, provider=provider)}
                assert [await mallory.call(view, POST, body, **given) for view in views] == codes
            listed = [await bus.call(LIST, {"params": {}, "input": {}}, node=view.node) for view in views]
            assert [len(one.output["posts"]) for one in listed] == [1, 0]
    mesh.server.stop()


@pytest.mark.req("ATTACK-18")
async def test_a_grant_counts_at_one_node_in_all_its_processes(tmp_path: Path) -> None:
    """Two processes of the node that it names, and one of another node whose market does the same."""
    mesh = await start_mesh(tmp_path, "carol", "mallory")
    carol, own = mesh.others
    members = {"carol": carol, "mallory": own}
    victim = Victim(mesh.home, mesh.server.url, mesh.identity, Neighbourhood(mesh.home, members))
    for home in (mesh.home, mesh.guest):
        home.config_file.write_text(UNLIMITED)
    with mesh.published(), mesh.published(at=mesh.guest):
        async with (
            await mesh.bus("mallory", at=own) as bus,
            processes_of_service(bus, mesh.home, POST, 2) as here,
            processes_of_service(bus, mesh.guest, POST) as there,
        ):
            mallory = Attacker(bus)
            lent = Lent(victim, mallory, run=RUN)
            given = {"token": lent.token, "run": RUN, "grant": lent.grant(mesh.identity.node_id)}
            (elsewhere,) = there.views
            assert await mallory.call(elsewhere, POST, post_body(), **given, use=1) == "unauthorized"
            for use in (1, 2, 3):
                racers = (mallory.call(view, POST, post_body(), **given, use=use) for view in here.views * 2)
                codes = Counter(await asyncio.gather(*racers))
                assert codes == {"ok": 1, "unauthorized": 3}
            asked = [mallory.call(view, POST, post_body(), **given, use=4) for view in here.views]
            assert await asyncio.gather(*asked) == ["unauthorized"] * 2
            listed = await bus.call(LIST, {"params": {}, "input": {}}, node=mesh.identity.node_id)
            assert len(listed.output["posts"]) == 3
    mesh.server.stop()


@pytest.mark.req("ATTACK-18")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"provider": Identity.generate().node_id}, "unauthorized"),
        ({"provider": "*"}, "unauthorized"),
        ({"actor": Identity.generate().node_id}, "unauthorized"),
        ({"capability": "market.expire@1.0"}, "unauthorized"),
        ({"tool_hash": "blake3:" + "0" * 64}, "unauthorized"),
        ({"params_constraints": {"input.category": ["request"]}}, "unauthorized"),
        ({"params_constraints": {"corpus": ["system"]}}, "unauthorized"),
        ({"time": 1, "expires": 2}, "expired"),
        ({"community": Identity.generate().node_id}, "unauthorized"),
        ({"v": 2}, "unauthorized"),
        ({"approver": Identity.generate().node_id}, "invalid_signature"),
    ],
)
async def test_a_grant_of_something_else_is_none(
    mallory: Attacker, market: OfferView, lent: Lent, changes: dict[str, Any], code: str
) -> None:
    given = {"token": lent.token, "run": RUN, "grant": lent.grant(market.node, **changes), "use": 1}
    assert await mallory.call(market, POST, post_body("Not granted"), **given) == code
    assert await mallory.posted("Not granted") == 0
