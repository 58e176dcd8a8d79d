"""The bus as its users see it: call, stream, list.

See: docs/architecture.md#one-call-step-by-step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import msgspec

from hearthnet import telemetry
from hearthnet.bus.calls import gathering, unary
from hearthnet.bus.calls.attempt import CallOptions, Request
from hearthnet.bus.calls.contract_fetch import ContractLearner
from hearthnet.bus.calls.gathering import Gathered, More
from hearthnet.bus.calls.streaming import StreamCall
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.bus.routing.discovery import Discovery
from hearthnet.bus.routing.named_homes import of_copy, split_at_home
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.offer_watch import OfferWatch
from hearthnet.bus.routing.session_affinity import check_session
from hearthnet.bus.session import tracing
from hearthnet.bus.session.keyring import load_identity, load_roster
from hearthnet.bus.session.session import Session
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_provider_defined, refuse_home_only
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.capability_name import Capability, split_name
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.core.times import CLOCK, steady_ms
from hearthnet.nats.client import NatsClient
from hearthnet.nats.split_client import SplitClient, inbox_of
from hearthnet.protocol import subjects
from hearthnet.trust.authorization.approval import ANY_PROVIDER

if TYPE_CHECKING:
    from hearthnet.telemetry.exporter import Exporter

_ABSENT: Final = frozenset({"not_found", "partition", "timeout"})
"""Codes with which a call ends whose home is away."""


class Bus:
    """The connection of one process to the bus.

    Make it with `connect`, leave it with `close` or as a context manager.
    """

    def __init__(self, peer: Session, exporter: Exporter | None = None) -> None:
        self.peer = peer
        self._exporter = exporter
        self._discovery = Discovery(peer)
        self._contracts = ContractLearner(peer.home, peer.node_id, self.call, self._listed)

    @classmethod
    async def connect(cls, home: Home, name: str) -> Bus:
        """Join the bus of the node that runs in `home`, under `name` at the server.

        Raises:
            HearthNetError: `partition` (exit status 3) if no node runs there; `revoked` if the community has
                revoked the node; errors of its key or roster, as in keyring.py.
        """
        if not CLOCK.follows:
            CLOCK.follow(home)  # a program of somebody else; services and commands follow their home already
        state = read_node_state(home)
        bus = await cls.join(home, state.server.url, name, telemetry_to=state.telemetry, is_split=True)
        bus.peer.follow_roster_file()
        if bus.peer.roster.is_revoked(bus.peer.node_id):
            await bus.close()
            raise HearthNetError(
                "revoked",
                f"this node was put out of {bus.peer.roster.name}, and nobody answers it; an invite for its "
                "id brings it back: hearthnet invite redeem",
            )
        return bus

    @classmethod
    async def join(
        cls, home: Home, url: str, name: str, *, telemetry_to: str = "", is_split: bool = False
    ) -> Bus:
        """Join as `connect`, at a given address: for the node's own services while it starts.

        `telemetry_to` is the configured endpoint of spans and metrics. With `is_split`, which takes the
        node's own server, the frames of other nodes have a connection of their own.
        """
        identity = load_identity(home.device_key)
        roster = load_roster(home.roster, identity.node_id)
        if is_split:
            link = await SplitClient.join(url, identity, name)
        else:
            link = await NatsClient.connect(url, identity.login(), name, inbox=inbox_of(identity))
        peer = Session(identity, roster, link, home)
        try:
            await peer.membership.follow(link)
            await peer.listen()
            return cls(peer, _exporter(peer, name, telemetry_to))
        except BaseException:
            await peer.close()
            raise

    async def call(
        self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]
    ) -> ReceivedReply:
        """Call `name` or `name@major.minor` with `{params, input}` on the best of its processes.

        A capability with an effect on one home, and one whose contract its providers define, is called at
        this node, unless `node` names another. A corpus of a home that does not offer it is asked of a home
        that keeps a copy.

        Raises:
            HearthNetError: The provider's error; `bad_request` before anything is sent if the body does not
                fit the contract; `not_found` if no process offers it; `timeout`; `partition`.
        """
        if is_provider_defined(capability):
            capability = (await self.fetch_contract(capability, node=options.get("node", ""))).id
        contract = find_contract(capability)
        body, named = split_at_home(contract, body, self.peer.roster)
        request = _request(self.peer, contract, body, named, options)
        copied = of_copy(contract, body, named) if named else None
        if copied is None:
            return await unary.call(self.peer, self._discovery, request)
        return await self._call_with_copies(request, copied)

    async def gather(
        self,
        capability: str,
        body: dict[str, Any],
        *,
        best: int = 0,
        more: More | None = None,
        **options: Unpack[CallOptions],
    ) -> Gathered:
        """Ask every provider of a capability that only reads, or the `best` of them, within one timeout.

        What `body` leaves open of the required params is asked for as each offer has it: without a corpus,
        every corpus is searched. `more` returns the body for the next page of a reply. The errors of
        providers are in the result.

        Raises:
            HearthNetError: `bad_request` if `body` fits no request, and for a capability with side effects;
                `partition` if the connection to the server breaks.
        """
        contract = find_contract(capability)
        gathering.check_question(contract)
        body, node = split_at_home(contract, body, self.peer.roster)
        options["node"] = node or options.get("node", "")
        options["hops"] = options.get("hops") or tracing.hops()
        request = Request(contract=contract, body=body, **options)
        until = request.deadline()
        requests = await gathering.find_all(self.peer, self._discovery, request, best, until)
        return await gathering.ask_all(self.peer, self._discovery, requests, until, more)

    async def gather_from(
        self,
        capability: str,
        calls: Sequence[tuple[str, dict[str, Any]]],
        *,
        more: More | None = None,
        **options: Unpack[CallOptions],
    ) -> Gathered:
        """Make these calls, each of a node and its body, as `gather` does, without looking for providers.

        Raises:
            HearthNetError: `bad_request` as `gather`.
        """
        contract = find_contract(capability)
        gathering.check_question(contract)
        requests = [
            _request(
                self.peer,
                contract,
                *split_at_home(contract, body, self.peer.roster),
                CallOptions(**{**options, "node": node}),
            )
            for node, body in calls
        ]
        until = min((request.deadline() for request in requests), default=0.0)
        turns = gathering.in_turns(requests)
        return await gathering.ask_all(self.peer, self._discovery, turns, until, more)

    async def _call_with_copies(self, request: Request, copied: dict[str, Any]) -> ReceivedReply:
        """Make a call to a home for its corpus; if it does not offer it, with the body `copied` to others."""
        until = request.deadline()
        try:
            return await unary.call(self.peer, self._discovery, request)
        except HearthNetError as error:
            # A home that is there, and says that it has no such corpus, has the last word.
            is_there = error.code != "partition" and self._is_offered(request)
            if error.code not in _ABSENT or is_there:
                raise
            left = until - asyncio.get_running_loop().time()
            other = msgspec.structs.replace(request, body=copied, node="", timeout_seconds=left)
            try:
                return await unary.call(self.peer, self._discovery, other)
            except HearthNetError as missing:
                # Without a copy the caller learns of the home that was named.
                raise (error if missing.code in _ABSENT else missing) from error

    def _is_offered(self, request: Request) -> bool:
        """Return whether the node of `request` has a known offer that fits."""
        topic = subjects.topic(request.contract.capability)
        return any(
            view.node == request.node and request.contract.fits(request.body, view.params)
            for view in self._discovery.registry.offers(topic, steady_ms())
        )

    def stream(self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]) -> StreamCall:
        """Open a stream: `async with bus.stream(...) as stream: async for frame in stream`.

        Leaving it cancels. All else is as in `call`, except that contracts supplied by providers are not
        fetched; call `fetch_contract` before.
        """
        contract = find_contract(capability)
        body, named = split_at_home(contract, body, self.peer.roster)
        request = _request(self.peer, contract, body, named, options)
        if request.contract.stream_schema is None:
            raise HearthNetError("bad_request", f"{request.contract.id} does not stream; call it")
        return StreamCall(self.peer, self._discovery, request)

    async def offers(
        self, capability: str | None = None, *, suits: Callable[[OfferView], bool] | None = None
    ) -> list[OfferView]:
        """Return every offer in the mesh, or those of one capability, by a new find.

        An answer that takes much longer than the others is not waited for; but while none `suits`, busy
        providers are, up to 2 s.
        """
        return await self._listed(capability, suits)

    async def _listed(
        self, capability: str | None, suits: Callable[[OfferView], bool] | None = None, *, once: str = ""
    ) -> list[OfferView]:
        if capability is None:
            return await self._discovery.listed(subjects.EVERYTHING, suits, once=once)
        name, version = split_name(capability)
        wanted = subjects.topic(Capability(name, *version)) if version else subjects.EVERYTHING
        found = await self._discovery.listed(wanted, suits, once=once)
        return [view for view in found if view.is_called(capability)]

    async def fetch_contract(
        self, capability: str, *, node: str = "", listed: Sequence[OfferView] = ()
    ) -> Contract:
        """Return the contract of `capability`, from its provider if it is not installed.

        This node's provider is called first, and for names of other packages alone (contracts/dynamic.py);
        where `node` is named, that one's alone. Offers that were `listed` just now need not be found again.

        Raises:
            HearthNetError: `not_found` if no process offers it, with the names that other homes have for it,
                if it is a package's; the provider's error.
        """
        if not is_provider_defined(capability):
            return find_contract(capability)
        return await self._contracts.find(capability, node, listed)

    async def fetch_contracts(self, offers: list[OfferView]) -> None:
        """Fetch the contracts of those offers that are not installed; ignore errors."""
        await self._contracts.fetch_all(offers)

    def watch(self, capability: str) -> OfferWatch:
        """Follow the offers of `name` or `name@major.minor` (see `OfferWatch`)."""
        return OfferWatch(self.peer, self._discovery, find_contract(capability))

    async def close(self) -> None:
        """Leave the bus, and send the remaining spans and metrics."""
        await self.peer.close()
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            await asyncio.to_thread(exporter.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Joining:
    """A bus that is joined when this is awaited or entered; leaving the block leaves the bus."""

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._name = name
        self._bus: Bus | None = None

    def __await__(self) -> Generator[Any, None, Bus]:
        return Bus.connect(self._home, self._name).__await__()

    async def __aenter__(self) -> Bus:
        self._bus = await self
        return self._bus

    async def __aexit__(self, *_: object) -> None:
        if self._bus is not None:
            await self._bus.close()


def connect(home: str | Path | None = None, *, name: str = "program") -> Joining:
    """Join the bus of the node that runs in the folder `home`: `async with connect() as bus: ...`.

    Without the block, `bus = await connect()`, and `bus.close()` at the end. The folder defaults to
    HEARTHNET_HOME, then to the user's data folder; `name` is shown at the server.

    Raises:
        HearthNetError: As `Bus.connect`, when it is awaited or entered: `partition` with the rule `no_node`
            if no node runs there.
    """
    return Joining(Home.resolve(None if home is None else Path(home)), name)


def _request(
    peer: Session, contract: Contract, body: dict[str, Any], named: str, options: CallOptions
) -> Request:
    """Return the request of this node, after checking the arguments before anything is sent.

    `named` is the home that the corpus of the caller names, and `body` has the corpus alone.
    """
    own = peer.node_id
    contract.check_request(body)
    if named and options.get("node", named) not in ("", named):
        raise HearthNetError("bad_request", "the corpus names another home than the call")
    options["node"] = named or options.get("node", "")
    if options.get("session"):
        check_session(options["session"])
    if options.get("node"):
        ids.public_key(options["node"])
    elif (approval := options.get("approval")) is not None and approval.provider != ANY_PROVIDER:
        options["node"] = approval.provider
    if contract.defaults_to_own_node:
        if options.get("node", own) not in ("", own):
            refuse_home_only(contract.name)
        options["node"] = options.get("node") or own
    if contract.idempotent == "client_id" and not options.get("idempotency_key"):
        options["idempotency_key"] = str(body["input"]["client_id"])
    options["hops"] = options.get("hops") or tracing.hops()
    return Request(contract=contract, body=body, **options)


def find_contract(capability: str) -> Contract:
    """Return the contract of `name` or `name@major.minor`.

    Raises:
        HearthNetError: `not_found` with the nearest names.
    """
    return contracts().find(*split_name(capability))


def _exporter(peer: Session, name: str, telemetry_to: str) -> Exporter | None:
    """Export the process's traces, if configured."""
    traces = peer.traces
    exporter = telemetry.start(
        telemetry_to, name, peer.node_id, peer.instance, traces.in_flight, traces.dropped
    )
    if exporter is not None:
        traces.on_end, traces.sampled = exporter.on_end, exporter.sampled
        traces.on_selection = exporter.on_selection
    return exporter
