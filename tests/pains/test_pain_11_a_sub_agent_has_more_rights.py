"""11. A sub-agent has more rights, or loses granted ones: at any depth a call may do what its token says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.agent.tools.toolbox import TOOLS_CALL_ID
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.authority import CallerStatus, PresentedToken
from hearthnet.trust.authorization.token import Scope
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query
from tests.services.llm.responses.test_tool_calls import RUN, at_work, refused, token, wrapped
from tests.trust.authorization.test_authority import CALLER, claims, demand, outcome, under, wrapping

BOTH = (TOOLS_CALL_ID, QUERY)
_TARGETS = ["rag.query@1.0", "rag.query@2.1", "market.post@1.0"]
_NAMES = st.sampled_from(
    [*_TARGETS, "llm.tools.call@1.0", "auth.token.issue@1.0", "rag.query", "market.post", "llm.tools.call"]
)
_SCOPES = st.builds(
    lambda names, corpus: Scope(tuple(names), {"corpus": corpus} if corpus else {}),
    st.lists(_NAMES, min_size=1, max_size=4),
    st.lists(st.sampled_from(["system", "personal"]), max_size=2),
)


@pytest.mark.req("PAIN-11")
@given(_SCOPES, st.sampled_from(_TARGETS), st.sampled_from(["system", "personal", "x"]), st.integers(0, 6))
def test_at_any_depth_a_call_may_do_what_its_token_says_and_nothing_else(
    scope: Scope, target: str, corpus: str, depth: int
) -> None:
    """Effective(child) is within granted(parent), and no explicit grant is lost: wrapped `depth` times, a
    call is allowed exactly where the direct one is and, from depth 1, the wrapper is granted as well.
    """
    body = {"params": {"corpus": corpus}, "input": {}}
    member = CallerStatus(CALLER, "member")
    token = PresentedToken(claims("run", CALLER, CALLER, scope), member)
    direct = outcome(member, token, demand("member", capability=parse_capability(target)), body)[0]
    granted = scope.covers(parse_capability("llm.tools.call@1.0"))
    if depth == 0:
        expected = scope.covers(parse_capability(target)) and corpus in scope.params_constraints.get(
            "corpus", [corpus]
        )
        assert (direct == "") == expected
    else:
        wrapped = under(scope, wrapping(target, body, depth))
        assert (wrapped == "") == (direct == "" and granted)


@pytest.mark.asyncio
@pytest.mark.req("LLM-91", "PAIN-11")
async def test_a_token_must_cover_the_target_as_well(mesh: Mesh) -> None:
    probe, home = ProbeService(), mesh.identity.node_id
    async with at_work(mesh, probe) as (bus, _):
        owner = mesh.identity
        whole = token(bus, owner, home, *BOTH, constraints={"corpus": ["probe"]})
        await bus.call(TOOLS_CALL_ID, wrapped(QUERY, query()), token=whole, run=RUN)
        (asked,) = probe.calls
        assert asked.claims is not None
        assert asked.claims.scope.capabilities == BOTH
        only = token(bus, owner, home, TOOLS_CALL_ID)
        codes = {(await refused(bus, wrapped(QUERY, query()), token=only, run=RUN)).code}
        twice = wrapped(TOOLS_CALL_ID, wrapped(QUERY, query()))
        codes.add((await refused(bus, twice, token=only, run=RUN)).code)
        mine = wrapped("auth.token.issue@1.0", {})
        all_of_it = token(bus, owner, home, TOOLS_CALL_ID, "auth.token.issue")
        codes.add((await refused(bus, mine, token=all_of_it, run=RUN)).code)
        # A direct call is refused too.
        with pytest.raises(HearthNetError) as raised:
            await bus.call(QUERY, query(), token=only, run=RUN)
        codes.add(raised.value.code)
    assert codes == {"token_scope_insufficient"}
    assert len(probe.calls) == 1
