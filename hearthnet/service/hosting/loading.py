"""Services in modules: import one without running it.

A module may end with `hearthnet.run(service)`. Whoever imports it for its service, such as the process that
the supervisor starts, must not run it a second time.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting.service import Service

_importing: Final[ContextVar[bool]] = ContextVar("importing", default=False)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Make `hearthnet.run` return at once, while modules are imported for their services."""
    token = _importing.set(True)
    try:
        yield
    finally:
        _importing.reset(token)


def is_importing() -> bool:
    """Return whether a module is being imported for its service."""
    return _importing.get()


def load_service(source: str) -> Service:
    """Return the service in `module` or `module:attribute`; the present folder is searched, too.

    `module` may be the name of a file, such as `hello.py`.

    Raises:
        HearthNetError: `not_found` if there is no such module or service; `bad_request` if it has several
            services and none is named, or cannot be imported.
    """
    name, _, attribute = source.partition(":")
    path = Path(name)
    if path.suffix == ".py":
        folder, name = str(path.resolve().parent), path.stem
    else:
        folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with importing():
            module = import_module(name)
    except HearthNetError:
        raise
    except ModuleNotFoundError as error:
        raise HearthNetError(
            "not_found", f"there is no module {error.name}; install its package, or change to its folder"
        ) from error
    except Exception as error:
        raise HearthNetError(
            "bad_request", f"cannot import {name}: {type(error).__name__}: {error}"
        ) from error
    found = {key: one for key, one in vars(module).items() if isinstance(one, Service)}
    if attribute:
        found = {key: one for key, one in found.items() if key == attribute}
    if not found:
        raise HearthNetError(
            "not_found", f"there is no {attribute or 'service'} in {name}; write: service = Service(...)"
        )
    if len({id(one) for one in found.values()}) > 1:
        raise HearthNetError(
            "bad_request", f"{name} has several services; name one: {name}:{next(iter(found))}"
        )
    return next(iter(found.values()))
