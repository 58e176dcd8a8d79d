"""The execution of a run: model turns, dispatch of calls, authority."""

from __future__ import annotations
