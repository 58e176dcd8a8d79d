"""The namespaces of capability names: those of this project, and those of others (decision 0186). Pure.

A namespace is the part of a name before its first dot. Contracts in the namespaces of this project are
installed with it, except under `experimental.`. Every other namespace belongs to the package of a service,
whose processes supply its contracts.
"""

from __future__ import annotations

from typing import Final

RESERVED: Final = frozenset(
    {
        *(
            "auth",
            "chat",
            "community",
            "embed",
            "evidence",
            "experimental",
            "federation",
            "file",
            "img",
            "llm",
        ),
        *("market", "mesh", "node", "ocr", "rag", "rerank", "stt", "trans", "tts"),
    }
)
"""The namespaces of this project, those without a capability included."""


def namespace(name: str) -> str:
    """Return the namespace of a capability name, with or without version."""
    return name.partition(".")[0]


def is_home_only(name: str) -> bool:
    """Return whether `name` is outside the namespaces of this project.

    Such a capability is offered to its own node only, and called and learned from there only: nothing proves
    to another home whose name it is.
    """
    return "." in name and namespace(name) not in RESERVED
