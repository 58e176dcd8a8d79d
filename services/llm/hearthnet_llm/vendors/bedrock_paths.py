"""Paths of models at Amazon Bedrock, with the model's id and the choice of streaming."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from hearthnet_llm.vendors.json_access import refuse

SPELLING: Final = ("escaped", "plain", "slashed", "raw")
"""Variants of the id in the path: all escaped; colons unescaped; the slashes of an ARN unescaped; both."""
_SAFE: Final = {"plain": ":", "slashed": "/", "raw": ":/"}


def path(model: str, action: str, spelling: str) -> str:
    """Return `/model/{id}/{action}`."""
    return f"/model/{quote(model, safe=_SAFE.get(spelling, ''))}/{action}"


def parsed(url: str, actions: tuple[str, str], spelling: dict[str, str]) -> tuple[str, str, bool]:
    """Return the base URL, the model's id, and whether the second action (a stream) is meant."""
    base, found, rest = url.partition("/model/")
    written, _, action = rest.rpartition("/")
    if not found or action not in actions:
        refuse("path", f"must be /model/ID/{actions[0]} or /model/ID/{actions[1]}")
    left = "".join(sign for sign in ":/" if sign in written)
    spelling["id"] = next((how for how, safe in _SAFE.items() if safe == left), "escaped")
    return base, unquote(written), action == actions[1]
