"""Packages whose names are imported at their first use, so that importing the package costs next to nothing.

    if TYPE_CHECKING:
        from hearthnet.bus.bus import Bus
    else:
        __getattr__ = lazy(__name__, {"Bus": "hearthnet.bus.bus"})

The branch keeps type checkers strict: a module's `__getattr__` would have them accept every name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of `package`, whose names are defined in the modules `places`.

    A name is stored in the package at its first use. A place `module:other` names the definition too, where
    that is called otherwise.
    """

    def find(name: str) -> Any:
        place = places.get(name)
        if place is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, other = place.partition(":")
        value = getattr(importlib.import_module(module), other or name)
        setattr(sys.modules[package], name, value)
        return value

    return find
