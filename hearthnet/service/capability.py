"""How a service author says what a method answers, and what is offered (architecture.md, "service/")."""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from hearthnet.contracts import Contract, contracts

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])
_MARK: Final = "__hearthnet_capability__"


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
    """One method of a service, bound to its contract and to the types of its input."""

    contract: Contract
    method: Callable[..., Awaitable[Any]]
    params_type: Any
    input_type: Any


def capability(name: str) -> Callable[[Handler], Handler]:
    """Marks the method that answers `name@major.minor`.

    The method takes a `Call[Params, Input]` (msgspec Structs), and a `Stream` where the contract has a
    stream schema; it returns a `Reply`.
    """

    def mark(method: Handler) -> Handler:
        setattr(method, _MARK, name)
        return method

    return mark


def endpoints(service: object) -> dict[str, Endpoint]:
    """The marked methods of `service`, by capability."""
    found: dict[str, Endpoint] = {}
    for attribute in dir(type(service)):
        method = getattr(type(service), attribute)
        name = getattr(method, _MARK, None)
        if name is not None:
            params_type, input_type = typing.get_args(typing.get_type_hints(method)["call"])
            found[name] = Endpoint(
                contracts().get(name), getattr(service, attribute), params_type, input_type
            )
    return found
