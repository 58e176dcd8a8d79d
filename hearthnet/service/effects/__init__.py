"""Side effects that happen exactly once, and the logs that prove them."""

from __future__ import annotations
