"""The gateway's own routes: calls, capabilities, the OpenAPI document."""

from __future__ import annotations
