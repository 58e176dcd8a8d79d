"""The base class of services.

See: docs/services.md#a-service-that-answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from hearthnet.service.decorators import Endpoint, Offer
from hearthnet.service.hosting.context import NodeContext

GROUP: Final = "hearthnet.services"
"""The entry-point group under which services are installed."""


class Service:
    """A program that offers capabilities: subclass it, and mark methods with `@capability`.

    Each service runs in one or more processes of its own; services communicate over the bus only.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "0.1.0"

    def __init__(self) -> None:
        self._changed: Callable[[], None] | None = None
        self.note: str | None = None
        """One line for a person beside the service's state, None if all is well."""
        self.address = ""
        """A URL for people, of a service that listens beside the bus."""

    async def start(self, node: NodeContext) -> None:
        """Open the resources of the service. Called once, before anything is offered."""

    async def opened(self) -> None:
        """Do slow work that the start does not need. Called once all is offered, beside the calls."""

    def offers(self) -> list[Offer]:
        """Return the present offers; called again after `offers_changed`."""
        return []

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints of capabilities with contracts of its own (contracts/dynamic.py)."""
        return []

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
