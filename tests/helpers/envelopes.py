"""Signed calls of clients that have a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearthnet.core import ids
from hearthnet.gateway.http.signed_request import PURPOSE, signed_part
from hearthnet.trust.keys import Identity


def sign_envelope(identity: Identity, envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Return `envelope` with `from` and `signature` of `identity`."""
    said = {**envelope, "from": identity.node_id}
    return {**said, "signature": ids.PREFIX + ids.b64(identity.sign(PURPOSE, signed_part(said)))}
