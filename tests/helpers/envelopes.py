"""Signed calls of clients that have a key, and how a page with a key opens a link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearthnet.core import ids
from hearthnet.gateway.auth import session_routes
from hearthnet.gateway.http.signed_request import PURPOSE, signed_part
from hearthnet.trust.keys import Identity
from hearthnet.trust.signed_document import sign


def sign_envelope(identity: Identity, envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Return `envelope` with `from` and `signature` of `identity`."""
    said = {**envelope, "from": identity.node_id}
    return {**said, "signature": ids.PREFIX + ids.b64(identity.sign(PURPOSE, signed_part(said)))}


def opening(identity: Identity, code: str, node: str, name: str = "browser") -> dict[str, str]:
    """The body by which a page with that key opens the link with `code` of `node`."""
    document = session_routes.PageKey(code=code, key=identity.node_id, name=name, node=node)
    body: dict[str, str] = sign(document, identity, session_routes.PURPOSE).as_json()
    del body["node"]
    return body


def parts_of(link: str) -> tuple[str, str, str]:
    """The address of the gateway, the code and the node of a link."""
    base, _, rest = link.partition("/#code=")
    return base, rest[:32], ids.PREFIX + rest[32:]
