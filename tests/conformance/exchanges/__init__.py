"""Exchanges with vendors of models, written by hand after the vendors' references: one module per wire.

Every wire's answers, whole and streamed, with what is easily lost: several calls at once, thoughts with their
proofs, arguments that are cut off, usage, errors. They are in the form of recordings (docs/vendors.md,
"Recorded exchanges"), and the same checks run over them, in every checkout.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

MODULES = ("anthropic", "bedrock_anthropic", "bedrock_converse", "gemini", "ollama", "openai", "compatible")


def write(folder: Path) -> Path:
    """Write them all into `folder`, as recordings lie there."""
    for module in MODULES:
        written: dict[str, dict[str, dict[str, Any]]] = import_module(f"{__name__}.{module}").EXCHANGES
        for provider, exchanges in written.items():
            (folder / provider).mkdir(parents=True, exist_ok=True)
            for name, one in exchanges.items():
                made = {"id": name, "provider": provider, **one}
                (folder / provider / f"{name}.json").write_text(json.dumps(made, ensure_ascii=False))
    return folder
