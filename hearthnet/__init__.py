"""Share the capabilities of a community's computers over NATS.

    async with hearthnet.connect() as bus:
        reply = await bus.call("rag.query", {"params": {"corpus": "system"}, "input": {"query": "soil"}})

These names are public, and so are those of the packages that docs/services.md lists; all else is internal.
Importing this package loads the errors alone.

See: docs/services.md#what-is-public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hearthnet.core.errors import (
    Expired,
    HearthNetError,
    InternalError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    Timeout,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.agent.runtime.executor import ToolExecutor
    from hearthnet.agent.tools.types import ToolDefinition
    from hearthnet.bus.bus import Bus, connect
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.core.home import Home
    from hearthnet.service.call import Call, Reply
    from hearthnet.service.decorators import Offer, capability
    from hearthnet.service.hosting.context import NodeContext
    from hearthnet.service.hosting.run import run
    from hearthnet.service.hosting.service import Service
    from hearthnet.service.stream import Stream
else:
    __getattr__ = lazy(
        __name__,
        {
            "Bus": "hearthnet.bus.bus",
            "Call": "hearthnet.service.call",
            "Home": "hearthnet.core.home",
            "NodeContext": "hearthnet.service.hosting.context",
            "Offer": "hearthnet.service.decorators",
            "OfferView": "hearthnet.bus.routing.offer_registry",
            "Reply": "hearthnet.service.call",
            "Service": "hearthnet.service.hosting.service",
            "Stream": "hearthnet.service.stream",
            "ToolDefinition": "hearthnet.agent.tools.types",
            "ToolExecutor": "hearthnet.agent.runtime.executor",
            "capability": "hearthnet.service.decorators",
            "connect": "hearthnet.bus.bus",
            "run": "hearthnet.service.hosting.run",
        },
    )

__version__: Final = "0.1.0"
__all__ = [
    "Bus",
    "Call",
    "Expired",
    "HearthNetError",
    "Home",
    "InternalError",
    "InvalidRequest",
    "NodeContext",
    "NotFound",
    "Offer",
    "OfferView",
    "OutcomeUnknown",
    "Overloaded",
    "Reply",
    "Service",
    "Stream",
    "Timeout",
    "ToolDefinition",
    "ToolExecutor",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "__version__",
    "capability",
    "connect",
    "run",
]


def __dir__() -> list[str]:
    """Return the public names, those that are not loaded yet among them."""
    return __all__
