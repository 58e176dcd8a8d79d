"""The profile of a model behind a URL, from its config, its server and its kind.

The config has priority, then knowledge learned by testing, then the server's data, then the kind's defaults.
"""

from __future__ import annotations

from typing import Final

from hearthnet.core import ModelConfig
from hearthnet.models import is_near
from hearthnet_llm.backends import backend_kinds
from hearthnet_llm.backends.backend_kinds import KINDS
from hearthnet_llm.interface.profile import Profile
from hearthnet_llm.vendors.catalog import CatalogEntry

FEW: Final = 4
"""Concurrent answers of a nearby server, which mostly runs on the hardware of one computer."""
MANY: Final = 64
"""Concurrent answers of a vendor, or of a server program made for many."""
_BATCHING: Final = ("vllm",)


def profile_of(config: ModelConfig, told: CatalogEntry) -> Profile:
    """Return the profile of the model; `told` has its server's data and learned abilities."""
    kind = KINDS[config.kind]
    tools = _first(config.tools is not False if config.tools is not None else None, told.tools, kind.tools)
    vision = _first(config.vision, told.vision, backend_kinds.sees(config))
    near = is_near(config.url)
    return Profile(
        model=config.name,
        backend=config.kind,
        ctx=config.ctx or told.ctx or kind.ctx,
        ctx_known=bool(config.ctx or told.ctx or not kind.ctx_guessed),
        aliases=(config.model,) if config.model != config.name else (),
        languages=config.languages,
        tool_mode="text" if config.tools == "text" else "native" if tools else "none",
        modalities=("text", "vision") if vision else ("text",),
        continues=True,
        summarises=True,
        requires_internet=not near,
        max_concurrent=config.max_concurrent or (FEW if near and told.server not in _BATCHING else MANY),
    )


def _first(*values: bool | None) -> bool:
    """Return the first value other than None, or False."""
    return next((value for value in values if value is not None), False)
