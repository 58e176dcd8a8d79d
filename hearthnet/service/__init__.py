"""The API for authors of services.

See: docs/services.md.
"""

from __future__ import annotations

from hearthnet.service.call import Call, Reply
from hearthnet.service.decorators import Offer, capability
from hearthnet.service.hosting.context import NodeContext
from hearthnet.service.hosting.service import Service
from hearthnet.service.stream import Stream

__all__ = ["Call", "NodeContext", "Offer", "Reply", "Service", "Stream", "capability"]
