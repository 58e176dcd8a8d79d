"""The scopes and tokens of a gateway's clients, and the capabilities that they cover.

See: docs/protocol/gateway.md#clients.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from hearthnet.contracts.namespaces import is_derived
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.gateway.auth.client_store import StoredClient
from hearthnet.gateway.auth.home_persons import Limits
from hearthnet.trust.authorization.authority import UNDELEGABLE
from hearthnet.trust.authorization.token import Scope, mint, whole_server
from hearthnet.trust.community.roster import RANK
from hearthnet.trust.keys import Identity

TOKEN_SECONDS: Final = 3600
MAX_LOCAL_BYTES: Final = 560
"""Bytes of such names in one token of 2,048 bytes, beside all capabilities with installed contracts."""


def local_capabilities(home: Home) -> tuple[str, ...]:
    """Return the offers of this node without installed contract, as the supervisor publishes them.

    Servers come first; there are as many names as fit into a token, and none where no node runs. An MCP
    server is one name for all its tools.
    """
    try:
        status = home.state.stat()
    except OSError:
        return ()
    return _offered_names(home, status.st_ino, status.st_mtime_ns)


@lru_cache(1)
def _offered_names(home: Home, _inode: int, _changed_ns: int) -> tuple[str, ...]:
    """Return the names in the node's state; it is read again when its inode or time has changed."""
    try:
        services = read_node_state(home).services
    except HearthNetError:
        return ()
    lines = [line for service in services for line in service.offers if is_derived(line)]
    found, left = [], MAX_LOCAL_BYTES
    entries = {_entry(line.partition("@")[0]) for line in lines}
    # One entry for all tools of an MCP server comes before the single capabilities of packages.
    for name in sorted(entries, key=lambda entry: (not entry.endswith("*"), entry)):
        left -= len(name) + 3  # quotes and comma
        if left >= 0:
            found.append(name)
    return tuple(found)


def _entry(name: str) -> str:
    """Return the entry of a scope for a capability: its whole server, where it has one."""
    whole = f"{name.rpartition('.')[0]}.*"
    return name if whole_server(whole) is None else whole


def session_token(
    identity: Identity,
    community: str,
    entry: StoredClient,
    scope: Scope,
    now: int,
    seconds: int = TOKEN_SECONDS,
) -> str:
    """Return a token under which `identity`, as a gateway, calls for a client of its book.

    Raises what `mint` raises.
    """
    return mint(
        identity,
        subject=identity.node_id,
        audience=community,
        scope=scope,
        now_ms=now,
        ttl_seconds=seconds,
        principal=entry.principal,
        cnf=entry.key,
    )


def check_room(identity: Identity, community: str, entry: StoredClient) -> None:
    """Check, before a client is added, that its tokens will not be too large.

    Raises:
        HearthNetError: `bad_request` if its scope has too many capabilities.
    """
    count = len(entry.scope.capabilities)
    scope = entry.scope if count else msgspec.structs.replace(entry.scope, capabilities=everything())
    try:
        session_token(identity, community, entry, scope, entry.created_at)
    except HearthNetError as error:
        if error.code != "payload_too_large":
            raise
        raise HearthNetError(
            "bad_request",
            f"{count} capabilities have no room in a token: {error.message}. Leave --scope out for all "
            "that a guest may call, name a whole MCP server as experimental.mcp.NAME.*, or add two clients",
        ) from error


def everything() -> tuple[str, ...]:
    """Return all capabilities that a guest may call.

    These are the ones that require a level, and not the node itself or its own key.
    """
    least = RANK["member"]
    names = (one.name for one in contracts() if RANK.get(one.trust_required, 0) >= least)
    return tuple(dict.fromkeys(name for name in names if name not in UNDELEGABLE))


def allowed(limits: Limits) -> tuple[str, ...]:
    """Return the capabilities that a child may call: those of its limits, else all that only read."""
    if limits.capabilities:
        return limits.capabilities
    names = everything()
    effects = {one.name for one in contracts() if one.side_effects}
    return tuple(name for name in names if name not in effects)
