"""The protocols of all vendors, converted in both directions without I/O.

There is one module or package for each protocol ("wire"), with the functions of `vendors.wire.Wire`;
differences between vendors of one protocol are data (`vendors.openai.dialect`). Modules are
imported on first use.

See: docs/vendors.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from hearthnet import HearthNetError
from hearthnet_llm.vendors.wire import Wire

WIRES: Final[dict[str, str]] = {
    "anthropic": "hearthnet_llm.vendors.anthropic",
    "bedrock-anthropic": "hearthnet_llm.vendors.bedrock_anthropic",
    "bedrock-converse": "hearthnet_llm.vendors.bedrock_converse",
    "gemini": "hearthnet_llm.vendors.gemini",
    "ollama": "hearthnet_llm.vendors.ollama",
    "openai": "hearthnet_llm.vendors.openai",
}
"""The module of each protocol, by name."""


def wire(name: str) -> Wire:
    """Return the protocol called `name`.

    Raises:
        HearthNetError: `not_found`, with the known names.
    """
    if name not in WIRES:
        names = ", ".join(WIRES)
        raise HearthNetError(
            "not_found", f"no wire {name!r}; there is {names}", details={"nearest": list(WIRES)}
        )
    return cast(Wire, import_module(WIRES[name]))
