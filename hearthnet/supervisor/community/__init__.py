"""Joining a community and keeping its roster up to date."""

from __future__ import annotations
