"""How a service author says what a method answers, and what is offered (architecture.md, "service/")."""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from hearthnet.contracts import Contract, contracts
from hearthnet.service.statistics import Statistics

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])
_MARK: Final = "__hearthnet_capability__"


class _Marked(NamedTuple):
    capability: str
    event_sourced: bool


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a service offers: a capability with the params that its contract's `match` compares.

    `max_concurrent` is the contract's where it is 0. `trust` raises the contract's demand: `self` keeps it
    to this node.
    """

    capability: str
    params: dict[str, Any] = {}
    max_concurrent: int = 0
    trust: str = ""


class Endpoint(msgspec.Struct, frozen=True):
    """One method of a service, bound to its contract and to the types of its input.

    `event_sourced`: its effect is an append to an `EventLog`, which is claim and outcome in one.
    """

    contract: Contract
    method: Callable[..., Awaitable[Any]]
    params_type: Any
    input_type: Any
    event_sourced: bool = False
    statistics: Statistics = msgspec.field(default_factory=Statistics)


def capability(name: str, *, event_sourced: bool = False) -> Callable[[Handler], Handler]:
    """Marks the method that answers `name@major.minor`; `event_sourced` where its effect is one append to an
    `EventLog`. Any other effect is claimed by the library (service/effects.py).

    The method takes a `Call[Params, Input]` (msgspec Structs), and a `Stream` where the contract has a
    stream schema; it returns a `Reply`.
    """

    def mark(method: Handler) -> Handler:
        setattr(method, _MARK, _Marked(name, event_sourced))
        return method

    return mark


def endpoints(service: object) -> dict[str, Endpoint]:
    """The marked methods of `service`, by capability."""
    found: dict[str, Endpoint] = {}
    for attribute in dir(type(service)):
        method = getattr(type(service), attribute)
        marked: _Marked | None = getattr(method, _MARK, None)
        if marked is not None:
            params_type, input_type = typing.get_args(typing.get_type_hints(method)["call"])
            found[marked.capability] = Endpoint(
                contract=contracts().get(marked.capability),
                method=getattr(service, attribute),
                params_type=params_type,
                input_type=input_type,
                event_sourced=marked.event_sourced,
            )
    return found
