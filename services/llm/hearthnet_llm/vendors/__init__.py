"""Every vendor's wire, translated both ways without I/O.

One module or package per wire, each with the functions of `vendors.wire.Wire`; what differs between vendors
of one wire is data (`vendors.profiles`). Modules are imported when they are first asked for.

See: docs/vendors.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from hearthnet.errors import HearthNetError
from hearthnet_llm.vendors.wire import Wire

WIRES: Final[dict[str, str]] = {
    "anthropic": "hearthnet_llm.vendors.anthropic",
    "bedrock-anthropic": "hearthnet_llm.vendors.bedrock_anthropic",
    "bedrock-converse": "hearthnet_llm.vendors.converse",
    "gemini": "hearthnet_llm.vendors.gemini",
    "ollama": "hearthnet_llm.vendors.ollama",
    "openai": "hearthnet_llm.vendors.openai",
}
"""Each wire's module by name."""


def wire(name: str) -> Wire:
    """The wire called `name`; `not_found` names those there are."""
    if name not in WIRES:
        known = ", ".join(WIRES)
        raise HearthNetError(
            "not_found", f"no wire {name!r}; there is {known}", details={"nearest": list(WIRES)}
        )
    return cast(Wire, import_module(WIRES[name]))
