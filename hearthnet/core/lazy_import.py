"""Packages whose names are imported at their first use, so that importing the package costs next to nothing.

    if TYPE_CHECKING:
        from hearthnet.bus.blobs.writer import Writer as BlobWriter
        from hearthnet.bus.outbox import Outbox
    else:
        __getattr__ = lazy(
            __name__, {"hearthnet.bus.blobs.writer": "BlobWriter=Writer", "hearthnet.bus.outbox": "Outbox"}
        )

The branch keeps type checkers strict: a module's `__getattr__` would have them accept every name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of `package`, whose names are defined in `modules`.

    The names of a module are separated by spaces; `name=other` is defined there as `other`. A name is stored
    in the package at its first use.
    """
    places = {}
    for module, names in modules.items():
        for entry in names.split():
            name, _, other = entry.partition("=")
            places[name] = module, other or name

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, other = places[name]
        value = getattr(importlib.import_module(module), other)
        setattr(sys.modules[package], name, value)
        return value

    return find
