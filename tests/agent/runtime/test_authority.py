"""The run tokens and approvals of one run, over time."""

from __future__ import annotations

import copy

import msgspec
import pytest

from hearthnet.agent.loop.events import Dispatch
from hearthnet.agent.runtime.authority import (
    MOST_CAPABILITIES,
    RENEW_SECONDS,
    TOKEN_TTL_SECONDS,
    RunAuthority,
    Scopes,
)
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.toolbox import BoundTool, Toolbox
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core import ids
from hearthnet.trust.authorization import token as tokens
from hearthnet.trust.authorization.token import Claims, Scope
from hearthnet.trust.keys import Identity
from tests.agent.bench import RUN, TOOLBOX

ANNA = Identity(bytes([1]) * 32)
BERTA = Identity(bytes([2]) * 32)
COMMUNITY = Identity(bytes([2]) * 32).node_id
BOUND = [tool for tool in TOOLBOX if isinstance(tool, BoundTool)]
SCOPES = Scopes(BOUND)
SEARCH, POST = TOOLBOX.bound("search_corpus"), TOOLBOX.bound("market_post")
NOON = 1_795_292_100_000


class Wall:
    """A clock that can be set."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> int:
        return self.now


class Nobody:
    """A mesh without offers: an effect on the community takes none."""

    async def offers(self, capability: str | None = None) -> list[OfferView]:
        return []


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def authority(wall: Wall) -> RunAuthority:
    return RunAuthority(ANNA, COMMUNITY, RUN, SCOPES, wall)


def shown(token: str, now_ms: int) -> Claims:
    """The claims as a provider accepts them at this moment, whose clock is right."""
    claims = tokens.decode(token)
    claims.check_use(caller=ANNA.node_id, community=COMMUNITY, now_ms=now_ms)
    return claims


def scope(authority: RunAuthority, tool: BoundTool) -> Scope:
    return tokens.decode(authority.token(tool)).scope


@pytest.mark.req("TOOL-26")
def test_a_run_token_is_for_its_owner_its_run_and_a_few_minutes(authority: RunAuthority) -> None:
    claims = shown(authority.token(POST), NOON)
    assert (claims.kind, claims.run, claims.iss, claims.sub) == ("run", RUN, ANNA.node_id, ANNA.node_id)
    assert claims.exp - claims.iat == TOKEN_TTL_SECONDS
    assert not claims.scope.counted


@pytest.mark.req("TOOL-26")
def test_what_the_own_node_reads_with_serves_every_run(wall: Wall) -> None:
    scopes = Scopes(BOUND)
    one, other = (RunAuthority(ANNA, COMMUNITY, ids.new_ulid(), scopes, wall) for _ in range(2))
    claims = shown(one.token(SEARCH), NOON)
    assert (claims.kind, claims.run, claims.iss, claims.sub) == ("grant", "", ANNA.node_id, ANNA.node_id)
    assert not claims.scope.counted
    assert other.token(SEARCH) == one.token(SEARCH)
    assert other.token(POST) != one.token(POST)
    assert other.token(SEARCH, BERTA.node_id) != one.token(SEARCH, BERTA.node_id)


@pytest.mark.req("TOOL-26")
def test_a_token_for_another_node_is_for_the_run_and_some_calls(authority: RunAuthority) -> None:
    claims = tokens.decode(authority.token(SEARCH, BERTA.node_id))
    assert (claims.kind, claims.run, claims.iss, claims.sub) == ("run", RUN, ANNA.node_id, BERTA.node_id)
    assert claims.scope == Scope(("rag.query@1.0",), {"corpus": ["system"]}, max_calls_total=128)


@pytest.mark.req("TOOL-21")
def test_tools_that_are_fixed_to_the_same_share_a_token_reads_and_effects_apart(
    authority: RunAuthority,
) -> None:
    assert scope(authority, SEARCH) == Scope(("rag.query@1.0",), {"corpus": ["system"]})
    free = [tool for tool in BOUND if not tool.effect and not tool.definition.bound_params]
    reads = tuple(sorted(tool.capability for tool in free))
    assert {"market.list@1.0", "market.search@1.0", "rag.list_corpora@1.0"} <= set(reads)
    for name in ("list_corpora", "list_marketplace", "search_marketplace"):
        assert scope(authority, TOOLBOX.bound(name)) == Scope(reads)
    effects = ("market.delete@1.0", "market.expire@1.0", "market.post@1.0", "market.update@1.0")
    assert scope(authority, POST) == Scope(effects)
    handed_out = [authority.token(tool) for tool in BOUND for _ in range(2)]
    assert len(set(handed_out)) == 3


@pytest.mark.req("TOOL-21")
def test_two_tools_of_one_capability_have_each_their_own_values() -> None:
    mine, yours = (
        Toolbox(builtin_tools(["search_corpus"], {"search_corpus": {"corpus": corpus}})).bound(
            "search_corpus"
        )
        for corpus in ("mine", "yours")
    )
    other = BoundTool(
        msgspec.structs.replace(yours.definition, name="search_yours"), yours.contract, "search_yours"
    )
    authority = RunAuthority(ANNA, COMMUNITY, RUN, Scopes([mine, other]))
    assert scope(authority, mine).params_constraints == {"corpus": ["mine"]}
    assert scope(authority, other).params_constraints == {"corpus": ["yours"]}


def tool_of(capability: str) -> BoundTool:
    """A tool as if there were a contract of this name."""
    tool = copy.copy(TOOLBOX.bound("list_corpora"))
    vars(tool)["capability"] = capability
    vars(tool)["definition"] = msgspec.structs.replace(tool.definition, name=capability)
    return tool


@pytest.mark.req("TOOL-21")
def test_many_capabilities_have_several_tokens() -> None:
    made = [tool_of(f"rag.query{number}@1.0") for number in range(MOST_CAPABILITIES + 4)]
    authority = RunAuthority(ANNA, COMMUNITY, RUN, Scopes(made))
    for tool in made:
        assert tool.capability in scope(authority, tool).capabilities
    sizes = {authority.token(tool): len(scope(authority, tool).capabilities) for tool in made}
    assert sorted(sizes.values()) == [4, MOST_CAPABILITIES]


@pytest.mark.req("TOOL-26")
def test_it_is_renewed_before_its_time_runs_out(authority: RunAuthority, wall: Wall) -> None:
    first = authority.token(SEARCH)
    wall.now += (TOKEN_TTL_SECONDS - RENEW_SECONDS) * 1000 - 1
    assert authority.token(SEARCH) == first
    wall.now += 1
    assert authority.token(SEARCH) != first


@pytest.mark.req("TOOL-26")
@pytest.mark.parametrize("minutes", [-90, -1, 5, 90])
@pytest.mark.asyncio
async def test_a_clock_that_is_set_while_the_run_lasts_is_followed(
    authority: RunAuthority, wall: Wall, minutes: int
) -> None:
    authority.token(SEARCH)
    wall.now += minutes * 60_000
    assert shown(authority.token(SEARCH), wall.now).iat * 1000 == wall.now
    call = Dispatch(
        tool_call_id="a",
        name="market_post",
        capability=POST.capability,
        body={},
        client_id=ids.new_ulid(),
        timeout_ms=1,
        arguments_digest="",
        provider=ANNA.node_id,
    )
    (await authority.approve(POST, call, Nobody())).check_time(wall.now)
