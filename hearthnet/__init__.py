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
            "hearthnet.agent.runtime.executor": "ToolExecutor",
            "hearthnet.agent.tools.types": "ToolDefinition",
            "hearthnet.bus.bus": "Bus connect",
            "hearthnet.bus.routing.offer_registry": "OfferView",
            "hearthnet.core.home": "Home",
            "hearthnet.service.call": "Call Reply",
            "hearthnet.service.decorators": "Offer capability",
            "hearthnet.service.hosting.context": "NodeContext",
            "hearthnet.service.hosting.run": "run",
            "hearthnet.service.hosting.service": "Service",
            "hearthnet.service.stream": "Stream",
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
