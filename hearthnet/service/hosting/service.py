"""The base class of services.

See: docs/services.md#a-service-that-answers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, Literal, TypeVar

from hearthnet.contracts.namespaces import RESERVED
from hearthnet.core.errors import HearthNetError
from hearthnet.service import decorators
from hearthnet.service.authoring.function_capability import (
    ContractTerms,
    FunctionCapability,
    Idempotency,
)
from hearthnet.service.authoring.signature import definition_error, place_of
from hearthnet.service.decorators import Endpoint, Offer
from hearthnet.service.hosting.context import NodeContext

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])

GROUP: Final = "hearthnet.services"
"""The entry-point group under which services are installed."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class Service:
    """A program that offers capabilities.

    Make one, and decorate functions with its `capability`; or subclass it, and mark methods with
    `@capability` (service/decorators.py). Each service runs in one or more processes of its own; services
    communicate over the bus only.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "0.1.0"

    def __init__(self, name: str = "") -> None:
        """Make a service of functions under `name`; a subclass has its name as an attribute.

        Raises:
            HearthNetError: `bad_request` for a name that cannot be one, or is that of a service of HearthNet.
        """
        if name:
            _check_name(name)
            vars(self)["name"] = name  # a ClassVar for subclasses, so that each of them has to have one
        self._functions: dict[str, FunctionCapability] = {}
        self._changed: Callable[[], None] | None = None
        self.note: str | None = None
        """One line for a person beside the service's state, None if all is well."""
        self.address = ""
        """A URL for people, of a service that listens beside the bus."""

    def capability(
        self,
        name: str,
        *,
        side_effects: bool = False,
        trust: str = "self",
        idempotent: Idempotency | None = None,
        effect_scope: Literal["community", "node"] = "node",
        timeout_seconds: int = 30,
        max_concurrent: int = 8,
    ) -> Callable[[Function], Function]:
        """Provide `name@major.minor` by the decorated function.

        Its signature and docstring are the contract, with the fields given here
        (docs/contracts.md#the-parts). `trust` is the least
        level of a caller, `self` for this node alone. `idempotent` is `pure` without side effects and
        `client_id` with them, unless it is named. The function itself is returned unchanged.

        Raises:
            HearthNetError: `bad_request` with file, line and remedy for a function without a contract, a name
                in the namespaces of HearthNet, and a second function for one capability.
        """
        terms = ContractTerms(
            side_effects=side_effects,
            trust=trust,
            idempotent=idempotent,
            effect_scope=effect_scope,
            timeout_seconds=timeout_seconds,
            max_concurrent=max_concurrent,
        )

        def provide(function: Function) -> Function:
            made = FunctionCapability(name, function, terms)
            other = self._functions.setdefault(made.contract.id, made)
            if other is not made:
                raise definition_error(
                    function,
                    f"provides {name}, and so does {other.function.__qualname__} at "
                    f"{place_of(other.function)}; keep one of them, or give one another name or version",
                )
            return function

        return provide

    def functions(self) -> list[FunctionCapability]:
        """Return the capabilities of its functions, by name and version."""
        return [self._functions[name] for name in sorted(self._functions)]

    async def start(self, node: NodeContext) -> None:
        """Open the resources of the service. Called once, before anything is offered."""

    async def opened(self) -> None:
        """Do slow work that the start does not need. Called once all is offered, beside the calls."""

    def offers(self) -> list[Offer]:
        """Return the present offers; asked again after `offers_changed`.

        By default each marked method and each function is offered, without params.
        """
        return [Offer(capability=name) for name in (*decorators.endpoints(self), *self._functions)]

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints of capabilities with contracts of its own, by default those of functions."""
        return [each.endpoint for each in self._functions.values()]

    @property
    def may_define_contracts(self) -> bool:
        """Return whether it may offer capabilities with contracts of its own (contracts/dynamic.py)."""
        return bool(self._functions) or type(self).endpoints is not Service.endpoints

    async def stop(self) -> None:
        """Close the resources that `start` opened. Called once, after the last call has ended."""

    async def outcome(
        self, principal: str, idempotency_key: str, arguments_digest: str
    ) -> dict[str, Any] | None:
        """Return the `output` of an earlier call, if its effect is an event of this service.

        Called at the start, for calls that a process of this service had begun when it died. None if there is
        no such event; the library itself handles effects that are not events.
        """
        return None

    def offers_changed(self) -> None:
        """Report a change of `offers` or `note`; may be called from the event loop at any time."""
        if self._changed is not None:
            self._changed()

    def on_offers_changed(self, callback: Callable[[], None]) -> None:
        """Set the callback of `offers_changed`; for the process that runs the service."""
        self._changed = callback


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise HearthNetError(
            "bad_request", f"{name!r} cannot name a service; take up to 32 small letters, digits, - and _"
        )
    if name in RESERVED:
        raise HearthNetError("bad_request", f"the service {name} is HearthNet's own; take another name")
