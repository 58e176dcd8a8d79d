"""The models of the mesh, as OpenAI's API lists them.

Each model that the client may call is listed once, however many nodes offer it; `mesh` is the one that fits
best. A name with `+tools` at its end means: with the tools of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.openai.request import ANY_MODEL, TOOLS_SUFFIX

if TYPE_CHECKING:
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.trust.authorization.token import Scope

OWNER: Final = "hearthnet"


def model_list(scope: Scope, views: Iterable[OfferView]) -> list[dict[str, Any]]:
    """Return the models in the offers `views` of `llm.chat` that `scope` covers, by name."""
    found: dict[str, dict[str, Any]] = {}
    for view in views:
        params = view.params
        if not scope.covers(view.capability):
            continue
        for name in dict.fromkeys((str(params.get("model", "")), *map(str, params.get("models", ())))):
            if name and scope.constraints.violated({"params": {"model": name}, "input": {}}) is None:
                _add(found, name, params)
    if found and not scope.params_constraints:
        for page in list(found.values()):
            _merge(found, ANY_MODEL, page["hearthnet"])
    with_tools = [
        _page(f"{name}{TOOLS_SUFFIX}", page["hearthnet"])
        for name, page in found.items()
        if page["hearthnet"]["tools"]
    ]
    return sorted([*found.values(), *with_tools], key=lambda page: str(page["id"]))


def find(pages: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the entry of one model.

    Raises:
        HearthNetError: `not_found` if no such model is offered, with the known names.
    """
    known = {str(page["id"]): page for page in pages}
    if name not in known:
        raise HearthNetError(
            "not_found", f"no model {name[:80]!r} is offered; there is: {', '.join(known) or 'none'}"
        )
    return known[name]


def _add(found: dict[str, dict[str, Any]], name: str, params: dict[str, Any]) -> None:
    about = {
        "ctx": int(params.get("ctx", 0)),
        "tools": bool(params.get("tools_supported")),
        "vision": "vision" in params.get("modalities", ()),
    }
    _merge(found, name, about)


def _merge(found: dict[str, dict[str, Any]], name: str, about: dict[str, Any]) -> None:
    """Combine a model's offers: it has the abilities that at least one of them has."""
    page = found.setdefault(name, _page(name, about))
    page["hearthnet"] = {what: max(page["hearthnet"][what], value) for what, value in about.items()}


def _page(name: str, about: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": OWNER, "hearthnet": dict(about)}
