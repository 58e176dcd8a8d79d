"""The namespaces of capability names: those of this project and of others (decisions 0186, 0187). Pure.

A namespace is the part of a name before its first dot. Contracts in the namespaces of this project are
installed with it, except under `experimental.`. Every other namespace belongs to a package: its contracts are
installed with it, or its processes supply them.
"""

from __future__ import annotations

from typing import Final

from hearthnet.core.errors import HearthNetError

RESERVED: Final = frozenset(
    {
        "auth",
        "chat",
        "community",
        "embed",
        "evidence",
        "experimental",
        "federation",
        "file",
        "gateway",
        "hearthnet",
        "img",
        "llm",
        "market",
        "mcp",
        "mesh",
        "node",
        "ocr",
        "rag",
        "rerank",
        "stt",
        "trans",
        "tts",
    }
)
"""The namespaces and services of this project, those without a capability included."""


_DERIVED: Final = "experimental"
PREFIX: Final = f"{_DERIVED}."
"""The beginning of names whose versions are derived from their contracts (contracts/dynamic.py)."""


def namespace(name: str) -> str:
    """Return the namespace of a capability name, with or without version."""
    return name.partition(".")[0]


def is_home_only(name: str) -> bool:
    """Return whether `name` is outside the namespaces of this project.

    Such a capability is offered to its own node only, and called and learned from there only: another home
    may have another package with that name.
    """
    first, dot, _ = name.partition(".")
    return bool(dot) and first not in RESERVED


def is_derived(name: str) -> bool:
    """Return whether the version of `name` is derived from its contract."""
    return name.startswith(PREFIX)


def is_provider_defined(name: str) -> bool:
    """Return whether providers supply the contract of `name`, with or without version."""
    first, dot, _ = name.partition(".")
    return bool(dot) and (first == _DERIVED or first not in RESERVED)


def refuse_home_only(name: str) -> None:
    """Refuse `name` to whoever is not this node; nothing is looked up, so nothing is told about it.

    Raises:
        HearthNetError: `unauthorized` if it is outside the namespaces of this project.
    """
    if is_home_only(name):
        raise HearthNetError("unauthorized", f"{name.partition('@')[0]} is called at its own home only")
