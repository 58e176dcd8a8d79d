"""Tables, durations, citations and other output on the terminal."""

from __future__ import annotations
