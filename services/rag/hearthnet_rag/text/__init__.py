"""Words of a text: stems, stop words, compounds, frequencies."""

from __future__ import annotations
