"""What is promised of a model behind a URL: by the config, else as learned or told, else by its kind."""

from __future__ import annotations

from typing import Final

from hearthnet.config import ModelConfig
from hearthnet.models import addresses
from hearthnet_llm import kinds
from hearthnet_llm.kinds import KINDS
from hearthnet_llm.profile import Profile
from hearthnet_llm.vendors.catalog import Listed

FEW: Final = 4
"""Answers at once of a server nearby, which mostly runs on the hardware of one computer."""
MANY: Final = 64
"""Of a vendor, or a server that is made for many."""
_BATCHING: Final = ("vllm",)


def profile_of(config: ModelConfig, told: Listed) -> Profile:
    """The profile of the model; `told` is what its server says, refined by what was learned by asking."""
    kind = KINDS[config.kind]
    tools = _first(config.tools is not False if config.tools is not None else None, told.tools, kind.tools)
    vision = _first(config.vision, told.vision, kinds.sees(config))
    near = addresses.is_near(config.url)
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
    """The first that says something."""
    return next((value for value in values if value is not None), False)
