"""Who is on the other end of a request, and with whose authority it goes on (docs/gateway.md, "Clients").

    a client of the book    cookie `hearthnet_client`, or `Authorization: Bearer hnk_...`
    a session from elsewhere `Authorization: Bearer hntoken://...`, made for this node as a gateway
                             over a socket also as `token` of the first frame: pages can set no headers there
    an own key               a signed call with a grant or run token made for this node

The gateway never acts with the node's bare key: what it calls, it calls under the client's token, and the
providers check that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import HTTPConnection

from hearthnet import ids
from hearthnet.bus.peer import Peer
from hearthnet.canonical import content_hash
from hearthnet.contracts import contracts
from hearthnet.errors import HearthNetError
from hearthnet.gateway.book import SECRET_PREFIX, ClientBook, Entry, split_secret
from hearthnet.gateway.envelope import check_envelope
from hearthnet.gateway.limits import Limits, address_of
from hearthnet.times import now_ms
from hearthnet.trust.keys import Identity
from hearthnet.trust.roster import RANK
from hearthnet.trust.token import OWNER, SCHEME, Claims, Scope, check_use, mint
from hearthnet.wire.replay import ReplayWindow

TOKEN_SECONDS: Final = 3600
_RENEW_MS: Final = 10 * 60_000
_NOBODY: Final = (
    "say who you are: open the link that `hearthnet link` prints, or send an Authorization header with a key "
    "of `hearthnet clients add`"
)


class Client(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Who is on the other end of a request.

    `principal` is as trust.authority gives it: `<node id>/<guest>`, or a node id for an own key. `key` is
    whose signature counts for approvals, empty where the gateway gives them. `expires_at` is in Unix ms.
    `bearer` is the token that it showed, where it is not of the book; it belongs into no log and no answer.
    `is_owner`: a page with a key of its own that the node's owner opened by a link. It sees and decides what
    waits for the owner at the command line (docs/decisions/0164); no program's key and no token makes one.
    """

    id: str
    name: str
    principal: str
    key: str
    scope: Scope
    expires_at: int
    bearer: str = ""
    is_owner: bool = False

    def __repr__(self) -> str:
        return f"Client({self.id}, {self.principal})"


class Clients:
    """Tells clients from strangers, and has tokens for them."""

    def __init__(
        self, peer: Peer, book: ClientBook, limits: Limits | None = None, clock: Callable[[], int] = now_ms
    ) -> None:
        self.book = book
        self.limits = limits or Limits()
        self.cookie = f"hearthnet_client_{ids.short_id(peer.node_id)[8:12].lower()}"
        """Cookies do not know ports, and several nodes may run on one computer."""
        self._peer = peer
        self._clock = clock
        self._seen = ReplayWindow()
        self._minted: dict[str, tuple[tuple[Entry, Scope], str, int]] = {}
        self.more_capabilities: Callable[[], Iterable[str]] = tuple
        """What the owner's own pages may call beside what there are contracts for."""

    async def from_request(self, connection: HTTPConnection, shown: str = "") -> Client:
        """The client that sent a request, by its cookie or its Authorization header; where it has neither, by
        `shown`, a key or session token that came in another place.

        Raises `unauthorized`, `token_expired`, `token_revoked` and what else speaks against a token, and
        `rate_limited` for a client that asks too often, or an address that came with too many wrong keys.
        """
        try:
            client = self._shown_by(connection, shown)
        except HearthNetError:
            # Who shows the right key is heard all the same: others at its address are not its fault.
            self.limits.wrong(address_of(connection))
            raise
        self.limits.request(client.id)
        return client

    def is_bearer(self, shown: str) -> bool:
        """Whether `shown` alone says who the client is: a key, or the token of a session.

        The token of a member counts only with a call that its key has signed. What is no token is taken for
        one, so that `from_request` refuses it and counts it against its address.
        """
        if not (shown.startswith(SCHEME) and shown.isascii()):
            return bool(shown)
        try:
            return self._peer.tokens.claims(shown).kind == "session"
        except HearthNetError:
            return True

    def _shown_by(self, connection: HTTPConnection, elsewhere: str) -> Client:
        header = connection.headers.get("authorization", "")
        if header:
            kind, _, shown = header.partition(" ")
            if kind.lower() != "bearer":
                raise HearthNetError("unauthorized", "Authorization takes the form: Bearer KEY")
            return self._from_bearer(shown.strip())
        cookie = connection.cookies.get(self.cookie)
        if not cookie:
            if elsewhere:
                return self._from_bearer(elsewhere)
            raise HearthNetError("unauthorized", _NOBODY)
        return self.of(self.book.prove(*split_secret(cookie)))

    def from_envelope(self, envelope: Mapping[str, Any], client: Client | None) -> Client:
        """The client that makes the call in `envelope`; `client` is who sent the request, None where it did
        not say.

        A client with a key has signed it, one without has not. Raises what `check_envelope` raises, and what
        speaks against the token of an own key.
        """
        member = client is None
        client = client or self._own_key(envelope)
        if client.key:
            check_envelope(envelope, client.key, self._peer.community, self._seen, self._clock())
            if member:
                self.limits.request(client.key)
        elif "signature" in envelope or "from" in envelope:
            raise HearthNetError("bad_request", "this client has no key, and its calls no signature")
        return client

    def of(self, entry: Entry) -> Client:
        """The client that `entry` of the book stands for."""
        return Client(
            id=entry.id,
            name=entry.name,
            principal=f"{self._peer.node_id}/{entry.principal}",
            key=entry.key,
            scope=self.scope_of(entry),
            expires_at=entry.expires_at,
            is_owner=entry.made_by == "link" and entry.principal == OWNER and bool(entry.key),
        )

    def with_key(self, principal: str, key: str) -> Client | None:
        """The client of the book that approves for `principal` with `key`; None where there is none."""
        now = self._clock()
        for entry in self.book.entries():
            client = self.of(entry)
            if (client.principal, client.key) == (principal, key) and entry.expires_at > now:
                return client
        return None

    def token(self, client: Client) -> str:
        """The token under which calls for `client` are made, for five minutes at least where it is ours.

        Raises `unauthorized` where the client was removed, `token_expired` where its time is over.
        """
        now = self._clock()
        if client.bearer:
            if client.expires_at <= now:
                raise HearthNetError(
                    "token_expired", "the token's life is over; ask its issuer for a new one"
                )
            return client.bearer
        entry = self.book.find(client.id)
        wanted = entry, self.scope_of(entry)
        known, token, until = self._minted.get(client.id, (None, "", 0))
        if known != wanted or not 0 <= until - now - _RENEW_MS <= TOKEN_SECONDS * 1000:
            token, until = self._mint(entry, now), now + TOKEN_SECONDS * 1000
            self._minted[client.id] = wanted, token, until
        return token

    def shut_out(self, clients: Iterable[Client]) -> dict[str, HearthNetError]:
        """Why those of `clients` that were let in are not any more, by their ids: removed, revoked, or at the
        end of their time."""
        known, now = set(self.book.ids()), self._clock()
        found: dict[str, HearthNetError] = {}
        for client in clients:
            try:
                self._still(client, known, now)
            except HearthNetError as error:
                found[client.id] = error
        return found

    def _still(self, client: Client, known: set[str], now: int) -> None:
        if client.bearer:
            self._proved(client.bearer)
        elif client.id not in known or client.expires_at <= now:
            self.book.find(client.id)

    def forget(self, client: str) -> None:
        """Drops what is held of a client that was removed."""
        self._minted.pop(client, None)

    def scope_of(self, entry: Entry) -> Scope:
        """What a client of the book may call now."""
        if entry.scope.capabilities:
            return entry.scope
        more = self.more_capabilities() if entry.principal == OWNER else ()
        return msgspec.structs.replace(entry.scope, capabilities=(*everything(), *more))

    def _mint(self, entry: Entry, now: int) -> str:
        if len(self._minted) > 2 * len(self.book.ids()):
            known = set(self.book.ids())
            self._minted = {name: held for name, held in self._minted.items() if name in known}
        return session_token(self._peer.identity, self._peer.community, entry, self.scope_of(entry), now)

    def _from_bearer(self, shown: str) -> Client:
        if shown.startswith(SECRET_PREFIX):
            return self.of(self.book.prove(*split_secret(shown.removeprefix(SECRET_PREFIX))))
        if not shown.startswith(SCHEME):
            raise HearthNetError("unauthorized", "this is no key and no token of HearthNet")
        claims = self._proved(shown)
        if claims.kind != "session":
            raise HearthNetError("unauthorized", "this token counts only with a call that its key has signed")
        # Every provider of a client's call has seen the token that the gateway made for it.
        if claims.iss == self._peer.node_id and claims.issued_via is None:
            raise HearthNetError(
                "unauthorized", "the gateway calls by this token itself; show the key that you were given"
            )
        key = claims.cnf.key if claims.cnf is not None else ""
        return self._guest(shown, claims, f"{claims.iss}/{claims.principal}", key, claims.principal)

    def _own_key(self, envelope: Mapping[str, Any]) -> Client:
        """A member who calls with its own key; the token makes it ours to pass on."""
        shown = envelope.get("token")
        if not isinstance(shown, str) or not shown:
            raise HearthNetError("unauthorized", _NOBODY)
        claims = self._proved(shown)
        if claims.kind == "session":
            raise HearthNetError("unauthorized", "a session's token belongs into the Authorization header")
        return self._guest(shown, claims, claims.iss, claims.iss, ids.short_id(claims.iss))

    def _guest(self, shown: str, claims: Claims, principal: str, key: str, name: str) -> Client:
        return Client(
            id=content_hash(shown.encode("ascii"))[7:39],
            name=name,
            principal=principal,
            key=key,
            scope=claims.scope,
            expires_at=claims.exp * 1000,
            bearer=shown,
        )

    def _proved(self, shown: str) -> Claims:
        """What a token says that holds now, made for this node; asked again by every provider."""
        if not shown.isascii():
            raise HearthNetError("bad_request", "the token is malformed")
        claims, peer = self._peer.tokens.claims(shown), self._peer
        check_use(claims, caller=peer.node_id, community=peer.community, now_ms=self._clock())
        if peer.revocations.revoked(claims.iss, claims.jti):
            raise HearthNetError("token_revoked", "the token was revoked")
        issuer = peer.standing(claims.iss)
        if issuer.revoked or RANK.get(issuer.level, 0) < RANK["member"]:
            raise HearthNetError("unauthorized", "the token's issuer is no member of this community")
        return claims


def session_token(identity: Identity, community: str, entry: Entry, scope: Scope, now: int) -> str:
    """A token under which `identity`, as a gateway, calls for a client of its book. Raises as `mint`."""
    return mint(
        identity,
        subject=identity.node_id,
        audience=community,
        scope=scope,
        now_ms=now,
        ttl_seconds=TOKEN_SECONDS,
        principal=entry.principal,
        cnf=entry.key,
    )


def check_room(identity: Identity, community: str, entry: Entry) -> None:
    """Raises `bad_request` for a client whose tokens would be too large, before there is one."""
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
    """What a guest may ever call: the capabilities that ask for a level, and not for the node itself."""
    least = RANK["member"]
    return tuple(dict.fromkeys(one.name for one in contracts() if RANK.get(one.trust_required, 0) >= least))
