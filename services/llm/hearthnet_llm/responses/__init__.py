"""The response to a request, and the second attempts that mend it."""

from __future__ import annotations
