"""What a service is.

See: docs/services.md#a-service-that-answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from hearthnet.service.capability import Endpoint, Offer
from hearthnet.service.context import NodeContext

GROUP: Final = "hearthnet.services"
"""The entry-point group under which services are installed."""


class Service:
    """A program that offers capabilities. Subclass it, mark methods with `@capability`, name what is offered.

    Each service runs as a process of its own, or several; services meet on the bus only.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "0.1.0"

    def __init__(self) -> None:
        self._changed: Callable[[], None] | None = None
        self.note: str | None = None
        """One line that a person should read beside the service's state, None where all is well."""
        self.address = ""
        """A URL for people, of a service that listens beside the bus."""

    async def start(self, node: NodeContext) -> None:
        """Opens what the service needs. Called once, before anything is offered."""

    async def opened(self) -> None:
        """Goes on once all is offered, beside the calls: with what takes long and is not needed to start."""

    def offers(self) -> list[Offer]:
        """What is offered now; asked again after `offers_changed`."""
        return []

    def endpoints(self) -> list[Endpoint]:
        """What answers the offers of capabilities whose contracts it tells itself (contracts/told.py)."""
        return []

    async def stop(self) -> None:
        """Closes what `start` opened. Called once, after the last call has ended."""

    async def outcome(
        self, principal: str, idempotency_key: str, arguments_digest: str
    ) -> dict[str, Any] | None:
        """The `output` of an earlier call whose effect is an event of this service, None for none.

        Asked at the start, for calls that a process of this service had begun when it died. Of effects that
        are no events the library knows by itself.
        """
        return None

    def offers_changed(self) -> None:
        """Says that `offers` or `note` has changed; may be called from the event loop at any time."""
        if self._changed is not None:
            self._changed()

    def on_offers_changed(self, callback: Callable[[], None]) -> None:
        """Who is told; for the process that runs the service."""
        self._changed = callback
