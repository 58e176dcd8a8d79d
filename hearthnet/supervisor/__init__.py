"""`hearthnet up`: one node with its server and its services, each in a process of its own.

See: docs/architecture.md#what-runs.
"""

from __future__ import annotations

from hearthnet.supervisor.run import run
from hearthnet.supervisor.services.specs import ChildSpec

__all__ = ["ChildSpec", "run"]
