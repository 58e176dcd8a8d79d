"""The declarations of a service: the capabilities of its methods, and its offers.

See: docs/services.md#offers.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_home_only
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.service.call import Call

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])
_MARK: Final = "__hearthnet_capability__"


class _Marked(NamedTuple):
    capability: str
    event_sourced: bool
    erasable: bool
    takes_back: bool


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The offer of a capability, with the params that its contract's `match` compares.

    `max_concurrent` 0 means the contract's. `trust` raises the level that the contract requires: `self`
    restricts it to this node, `home` to this node and those clients of its gateway that are the owner's or
    were let in to its params.
    """

    capability: str
    params: dict[str, Any] = {}
    max_concurrent: int = 0
    trust: str = ""


class Statistics:
    """Counts of one endpoint since its process started, for `$SRV.STATS`; without contents of calls."""

    __slots__ = ("errors", "last_error", "nanoseconds", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.nanoseconds = 0
        self.last_error = ""

    def answered(self, nanoseconds: int) -> None:
        """Count a call that succeeded after `nanoseconds`."""
        self.requests += 1
        self.nanoseconds += nanoseconds

    def failed(self, nanoseconds: int, code: str) -> None:
        """Count a call that ended with the wire code `code`; a refused one took no time."""
        self.requests += 1
        self.errors += 1
        self.nanoseconds += nanoseconds
        self.last_error = code


class Endpoint(msgspec.Struct, frozen=True):
    """One method of a service, bound to its contract and to the types of its input.

    `event_sourced`: its effect is an append to an `EventLog`, which is claim and outcome in one. `erasable`:
    its input may have to be deleted later. `takes_back`: it ends or deletes what earlier calls have added.
    """

    contract: Contract
    method: Callable[..., Awaitable[Any]]
    params_type: Any
    input_type: Any
    event_sourced: bool = False
    erasable: bool = False
    takes_back: bool = False
    statistics: Statistics = msgspec.field(default_factory=Statistics)


def capability(
    name: str, *, event_sourced: bool = False, erasable: bool = False, takes_back: bool = False
) -> Callable[[Handler], Handler]:
    """Mark the method that answers `name@major.minor`.

    It takes a `Call[Params, Input]` (msgspec Structs), and a `Stream` if the contract has a stream schema; it
    returns a `Reply`. `event_sourced`: its effect is one append to an `EventLog`. Any other effect is claimed
    by the library (service/effects/exactly_once.py). `erasable`: people may have their input deleted. The
    audit log, from which no single entry is removed, then keeps the hash of the caller's frame, and the event
    the frame (docs/decisions/0124). `takes_back`: it ends or deletes what earlier calls have added, so it
    has a reserve where its caller's quota is used up (docs/decisions/0195).
    """

    def mark(method: Handler) -> Handler:
        setattr(method, _MARK, _Marked(name, event_sourced, erasable, takes_back))
        return method

    return mark


def endpoints(service: object) -> dict[str, Endpoint]:
    """Return the marked methods of `service`, by capability.

    Raises:
        HearthNetError: `bad_request` for a method that could never answer, with its name and the correct
            form.
    """
    found: dict[str, Endpoint] = {}
    for attribute in dir(type(service)):
        method = getattr(type(service), attribute)
        marked: _Marked | None = getattr(method, _MARK, None)
        if marked is None:
            continue
        bound: Callable[..., Awaitable[Any]] = getattr(service, attribute)
        endpoint = _endpoint(marked, bound)
        name = endpoint.contract.id
        if name in found:
            raise _mistake(
                bound, f"answers {name}, and so does {found[name].method.__name__}; keep one of them"
            )
        found[name] = endpoint
    return found


def _endpoint(marked: _Marked, method: Callable[..., Awaitable[Any]]) -> Endpoint:
    name = marked.capability.partition("@")[0]
    try:
        if is_home_only(name) and not contracts().has_packaged(name):
            raise HearthNetError(
                "bad_request",
                "no installed package brings its contract; decorate a function with "
                "`@service.capability`, which makes one",
            )
        contract = contracts().get(marked.capability)
    except HearthNetError as error:
        raise _mistake(method, f"cannot answer {marked.capability!r}: {error.message}") from error
    if not inspect.iscoroutinefunction(method):
        raise _mistake(method, "is not awaitable: write `async def`, and move work that blocks into a thread")
    params_type, input_type = _types(contract, method)
    return Endpoint(
        contract=contract,
        method=method,
        params_type=params_type,
        input_type=input_type,
        event_sourced=marked.event_sourced,
        erasable=marked.erasable,
        takes_back=marked.takes_back,
    )


def _types(contract: Contract, method: Callable[..., Awaitable[Any]]) -> tuple[Any, Any]:
    """Return the types of params and input in the method's annotations."""
    wanted = "(self, call: Call[Params, Input])"
    if contract.stream_schema is not None:
        wanted = "(self, call: Call[Params, Input], stream: Stream)"
    rule = f"answers {contract.id}, which takes `{wanted}`"
    names = list(inspect.signature(method).parameters)
    if len(names) != (1 if contract.stream_schema is None else 2):
        raise _mistake(method, f"{rule}; it has {', '.join(names) or 'nothing'} after self")
    try:
        hints = typing.get_type_hints(method)
    except (NameError, TypeError) as error:
        raise _mistake(method, f"{rule}; its types cannot be read: {error}") from error
    hint = hints.get(names[0])
    types = typing.get_args(hint)
    if typing.get_origin(hint) is not Call or len(types) != 2:
        raise _mistake(method, f"{rule}; `{names[0]}` is no Call[Params, Input]")
    return types[0], types[1]


def _mistake(method: Callable[..., Any], what: str) -> HearthNetError:
    return HearthNetError("bad_request", f"{method.__qualname__} {what}")
