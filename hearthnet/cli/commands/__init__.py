"""The commands: a module for each, or for a few that belong together."""

from __future__ import annotations
