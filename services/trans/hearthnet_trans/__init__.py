"""Translation by Apertium, Argos Translate packs, and models that vouch for languages.

See: docs/trans.md.
"""

from __future__ import annotations

from hearthnet_trans.service import TransService

__all__ = ["TransService"]
