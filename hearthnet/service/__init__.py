"""The hosting of services, and the stored events that some of them keep.

The names for every service are in `hearthnet` itself. See: docs/services.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.service.community.anti_entropy import AntiEntropy
    from hearthnet.service.community.event_chain import EventChain
    from hearthnet.service.decorators import Endpoint
    from hearthnet.service.effects.community_log import CommunityLog
    from hearthnet.service.effects.event_log import Event, EventLog, LogAdvanced, Recorded
    from hearthnet.service.worker_pool import WorkerPool
else:
    __getattr__ = lazy(
        __name__,
        {
            "hearthnet.service.community.anti_entropy": "AntiEntropy",
            "hearthnet.service.community.event_chain": "EventChain",
            "hearthnet.service.decorators": "Endpoint",
            "hearthnet.service.effects.community_log": "CommunityLog",
            "hearthnet.service.effects.event_log": "Event EventLog LogAdvanced Recorded",
            "hearthnet.service.worker_pool": "WorkerPool",
        },
    )

__all__ = [
    "AntiEntropy",
    "CommunityLog",
    "Endpoint",
    "Event",
    "EventChain",
    "EventLog",
    "LogAdvanced",
    "Recorded",
    "WorkerPool",
]
