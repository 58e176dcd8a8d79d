"""A home that a call names by words: `manuals@Kitchen`, or the argument `home` of a tool.

Display names are statements of their homes and not unique. A name that several may mean is refused with
their ids; it never picks one of them.

See: docs/protocol/discovery.md#naming-a-home.
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import short_id
from hearthnet.trust.community.names import with_id
from hearthnet.trust.community.roster import Roster

AT: Final = "@"
COPY_OF: Final = "copy_of"
"""The param by which a request asks for a copy of a corpus (docs/rag.md#copies-of-a-corpus)."""
_MOST_SHOWN: Final = 80
_MOST_NAMED: Final = 8
"""Maximum of homes that an error names."""


def home_called(roster: Roster, text: str) -> str:
    """Return the member that `text` means: its id, its short id, or the name by which it alone is shown.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` for several, with their ids.
    """
    nodes = roster.nodes_called(text)
    if len(nodes) == 1:
        return nodes[0]
    shown = text.strip()[:_MOST_SHOWN]
    if not nodes:
        raise HearthNetError(
            "not_found", f"no home of {roster.name} is called {shown!r}; see: hearthnet members"
        )
    homes = ", ".join(with_id(roster.shown_name(node), node) for node in nodes[:_MOST_NAMED])
    raise HearthNetError(
        "bad_request",
        f"{len(nodes)} homes may be meant by {shown!r}: {homes}; name one by its id",
        details={"providers": nodes[:_MOST_NAMED]},
        alt=nodes[:_MOST_NAMED],
    )


def split_at_home(contract: Contract, body: dict[str, Any], roster: Roster) -> tuple[dict[str, Any], str]:
    """Return `body` with its corpus alone, and the home behind an `@` in it, empty where there is none.

    That is so for reads of this project's contracts. Raises as `home_called`.
    """
    params = body.get("params")
    corpus = params.get("corpus") if isinstance(params, dict) else None
    if contract.side_effects or is_provider_defined(contract.name):
        return body, ""
    if not isinstance(corpus, str) or AT not in corpus:
        return body, ""
    name, _, home = corpus.partition(AT)
    return {**body, "params": {**body["params"], "corpus": name}}, home_called(roster, home)


def at_home(body: dict[str, Any], home: str) -> dict[str, Any]:
    """Return `body` with its corpus named as one of `home`; the reverse of `split_at_home`."""
    params = body["params"]
    return {**body, "params": {**params, "corpus": f"{params['corpus']}{AT}{home}"}}


def of_copy(contract: Contract, body: dict[str, Any], home: str) -> dict[str, Any] | None:
    """Return `body` as a request for a copy of the corpus of `home`; None if the contract has no copies."""
    if f"params.{COPY_OF}" not in contract.match:
        return None
    return {**body, "params": {**body["params"], COPY_OF: home}}


def with_home(name: str, node: str, roster: Roster) -> str:
    """Return how a corpus of `node` is named for all homes: by that home's name, or by its id if unsure."""
    shown = roster.shown_name(node)
    is_clear = bool(shown) and roster.nodes_called(shown) == [node] and not shown.endswith(")")
    return f"{name}{AT}{shown if is_clear else short_id(node)}"
