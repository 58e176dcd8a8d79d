"""The run tokens and approvals of one run, over time."""

from __future__ import annotations

import pytest

from hearthnet import ids
from hearthnet.bus.candidates import MOST_ATTEMPTS
from hearthnet.bus.registry import OfferView
from hearthnet.tools.authority import (
    DISPATCHES_PER_TOKEN,
    MAX_CALLS,
    RENEW_SECONDS,
    TOKEN_TTL_SECONDS,
    RunAuthority,
)
from hearthnet.tools.events import Dispatch
from hearthnet.trust import token as tokens
from hearthnet.trust.approval import check_time
from hearthnet.trust.keys import Identity
from hearthnet.trust.token import Claims
from tests.tools.bench import RUN, TOOLBOX

ANNA = Identity(bytes([1]) * 32)
COMMUNITY = Identity(bytes([2]) * 32).node_id
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
    return RunAuthority(ANNA, COMMUNITY, RUN, wall)


def shown(token: str, now_ms: int) -> Claims:
    """The claims as a provider accepts them at this moment, whose clock is right."""
    claims = tokens.decode(token)
    tokens.check_use(claims, caller=ANNA.node_id, community=COMMUNITY, now_ms=now_ms)
    return claims


@pytest.mark.req("TOOL-26")
def test_a_run_token_is_for_its_owner_its_run_a_few_calls_and_minutes(authority: RunAuthority) -> None:
    claims = shown(authority.token(SEARCH), NOON)
    assert (claims.kind, claims.run, claims.iss, claims.sub) == ("run", RUN, ANNA.node_id, ANNA.node_id)
    assert claims.exp - claims.iat == TOKEN_TTL_SECONDS
    assert claims.scope.max_calls_total == MAX_CALLS
    assert authority.token(POST) != authority.token(SEARCH)


@pytest.mark.req("TOOL-26")
def test_it_is_renewed_before_its_calls_run_out(authority: RunAuthority) -> None:
    handed_out = [authority.token(SEARCH) for _ in range(3 * DISPATCHES_PER_TOKEN)]
    assert len(set(handed_out)) == 3
    assert max(map(handed_out.count, handed_out)) * (MOST_ATTEMPTS + 1) <= MAX_CALLS


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
    )
    check_time(await authority.approve(POST, call, Nobody()), wall.now)
