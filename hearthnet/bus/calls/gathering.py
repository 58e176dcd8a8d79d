"""One question to many providers at once, bounded in time, with those that did not answer named.

What the question leaves open and the contract requires is taken from each offer: a search without a corpus
asks for all corpora of all homes. No home can push out another: of each the first offer is asked, then of
each the second one.

See: docs/protocol/discovery.md#asking-everybody, docs/decisions/0213.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, Literal

import msgspec

from hearthnet.bus.calls import unary
from hearthnet.bus.calls.attempt import Request
from hearthnet.bus.calls.candidates import Candidates
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.bus.routing.discovery import Discovery
from hearthnet.bus.routing.named_homes import COPY_OF
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.routing_table import UNMEASURED, is_compatible
from hearthnet.bus.session.session import Session
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.match import value_at
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import steady_ms
from hearthnet.protocol import subjects

MOST_CALLS: Final = 32
"""Maximum of calls of one question; further ones are named as not asked."""
MOST_PAGES: Final = 256
"""Maximum of replies of one provider to a question that it answers in pages."""
_REASONS: Final = {"silent": "no answer in time", "not_asked": "not asked, there are too many"}
_GRACE_SECONDS: Final = 0.25
"""Time in which a call that is over by its own deadline says why."""
State = Literal["answered", "failed", "silent", "not_asked"]
More = Callable[[ReceivedReply], dict[str, Any] | None]
"""Returns the body that asks for the next page of a reply, None after the last one."""


class ProviderAnswer(msgspec.Struct, frozen=True):
    """One provider of a question.

    `state` is `failed` with the `error`, and `silent` if it did not answer in time. `replies` are several
    where it answers in pages, and those before its failure otherwise.
    """

    node: str
    body: dict[str, Any]
    state: State
    replies: tuple[ReceivedReply, ...] = ()
    error: HearthNetError | None = None

    @property
    def reason(self) -> str:
        """Why there is no complete answer; the text of an error is its provider's."""
        if self.error is not None:
            return self.error.message
        return _REASONS.get(self.state, "")


class Gathered(msgspec.Struct, frozen=True):
    """All providers of a question, this node first, then in the order in which they were asked."""

    providers: tuple[ProviderAnswer, ...]

    @property
    def replies(self) -> list[ReceivedReply]:
        """Every reply."""
        return [reply for one in self.providers for reply in one.replies]

    @property
    def missing(self) -> list[ProviderAnswer]:
        """The providers without an answer, or a complete one."""
        return [one for one in self.providers if one.state != "answered"]

    def error(self, capability: str) -> HearthNetError:
        """Return the error for a question without any reply: that of the first provider asked."""
        failed = [one.error for one in self.providers if one.error is not None]
        if failed:
            return failed[0]
        if self.providers:
            return HearthNetError("timeout", f"nobody answered {capability} in time")
        return HearthNetError("not_found", f"nobody offers {capability} now; see: hearthnet caps")


def check_question(contract: Contract) -> None:
    """Check that many may be asked at once.

    Raises:
        HearthNetError: `bad_request` for a contract with side effects.
    """
    if contract.side_effects:
        raise HearthNetError("bad_request", f"{contract.id} has an effect: call one provider of it")


async def find_all(
    session: Session, discovery: Discovery, request: Request, best: int, until: float
) -> list[Request]:
    """Return a request for each provider, completed by its offer.

    With `best` these are that many, by the measures of routing. The search takes at most half of the time to
    the loop time `until`; then those are asked that are known. Raises as `Discovery.listed`.
    """
    contract, topic = request.contract, subjects.topic(request.contract.capability)
    await discovery.follow(contract)
    now, listed = asyncio.get_running_loop().time(), list[OfferView]()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(now + (until - now) / 2):
            listed = await discovery.listed(topic, is_hidden_too=True)
    # With those that are known and did not answer the find: they are asked, and named if they are silent.
    views = [*listed, *discovery.registry.offers(topic, steady_ms())]
    found = _requests(request, views, Candidates(session, discovery, request))
    score: dict[str, int] = {}
    for entry in discovery.tables[contract.id].entries:
        score[entry.view.node] = min(entry.score(), score.get(entry.view.node, UNMEASURED))

    def rank(node: str) -> tuple[int, float]:
        return score.get(node, UNMEASURED), random.random()

    own = session.node_id
    order = sorted(found, key=lambda node: (node != own, *rank(node)))
    requests = in_turns([one for node in order for one in found[node]])
    return requests[:best] if best else requests


def in_turns(requests: Iterable[Request]) -> list[Request]:
    """Return the first request of each node, then the second of each, and so on."""
    count: Counter[str] = Counter()
    turns: list[tuple[int, Request]] = []
    for request in requests:
        turns.append((count[request.node], request))
        count[request.node] += 1
    return [request for _, request in sorted(turns, key=itemgetter(0))]


def _requests(request: Request, views: Iterable[OfferView], chooser: Candidates) -> dict[str, list[Request]]:
    """Return the different requests by node, each node's in random order."""
    contract = request.contract
    found: dict[str, dict[bytes, Request]] = {}
    for view in views:
        if not is_compatible(contract, view) or not contract.fits(request.body, view.params):
            continue
        if not chooser.accepts(view):
            continue
        body = _completed(contract, request.body, view.params)
        contract.check_request(body)
        if not chooser.is_covered(body):
            continue
        one = msgspec.structs.replace(request, node=view.node, body=body)
        found.setdefault(view.node, {})[canonical_json(body["params"])] = one
    return {node: random.sample([*ones.values()], len(ones)) for node, ones in found.items()}


def _completed(contract: Contract, body: dict[str, Any], offer_params: dict[str, Any]) -> dict[str, Any]:
    """Return `body` with the params that it lacks and the offer has one value for.

    They are the required ones, and the home whose corpus an offered copy is of.
    """
    params = dict(body["params"])
    required = contract.request_schema["properties"]["params"].get("required", ())
    for name in (*required, COPY_OF):
        rule = contract.match.get(f"params.{name}")
        if rule is None or rule.rule != "equal" or value_at(f"params.{name}", body) is not None:
            continue
        if (offered := rule.offered(offer_params)) or name in required:
            params[name] = offered[0]
    return {**body, "params": params}


async def ask_all(
    session: Session, discovery: Discovery, requests: Sequence[Request], until: float, more: More | None
) -> Gathered:
    """Send the requests at once, at most `MOST_CALLS`, and wait for their replies until that loop time."""
    asked = await asyncio.gather(
        *(_ask(session, discovery, request, more, until) for request in requests[:MOST_CALLS])
    )
    later = [ProviderAnswer(request.node, request.body, "not_asked") for request in requests[MOST_CALLS:]]
    return Gathered((*asked, *later))


def _next_page(more: More, reply: ReceivedReply) -> dict[str, Any] | None:
    """Return what `more` does.

    Raises:
        HearthNetError: `internal_error` for a reply that says there is more and not how to ask for it.
    """
    try:
        return more(reply)
    except (LookupError, TypeError, ValueError) as error:
        raise HearthNetError("internal_error", f"a page names no next one: {error}") from error


async def _ask(
    session: Session, discovery: Discovery, request: Request, more: More | None, until: float
) -> ProviderAnswer:
    clock, body, replies = asyncio.get_running_loop().time, request.body, list[ReceivedReply]()
    state: State = "answered"
    failed: HearthNetError | None = None
    page: dict[str, Any] | None = body
    try:
        async with asyncio.timeout_at(until + _GRACE_SECONDS):
            while page is not None and len(replies) < MOST_PAGES:
                one = msgspec.structs.replace(request, body=page, timeout_seconds=until - clock())
                replies.append(await unary.call(session, discovery, one))
                page = None if more is None else _next_page(more, replies[-1])
        if page is not None:
            raise HearthNetError("capacity_exceeded", f"more than {MOST_PAGES} pages, not all are read")
    except TimeoutError:
        state = "silent"
    except HearthNetError as error:
        state, failed = ("silent", None) if error.code == "timeout" else ("failed", error)
    return ProviderAnswer(request.node, body, state, tuple(replies), failed)
