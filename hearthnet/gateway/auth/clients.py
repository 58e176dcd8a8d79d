"""The client of a request, and the authority of its calls (docs/gateway.md, "Clients").

    a client of the book    cookie `hearthnet_client`, or `Authorization: Bearer hnk_...`
    a session from elsewhere `Authorization: Bearer hntoken://...`, made for this node as a gateway;
                             over a socket also as `token` of the first frame: pages can set no headers there
    a member's own key       a signed call with a grant or run token made for this node

The gateway never acts with the node's bare key: it calls under the client's token, which the providers
check. The token of the owner's own pages also covers tools that were added here without an installed
contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import HTTPConnection

from hearthnet.bus.session.session import Session
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.client_store import SECRET_PREFIX, ClientStore, StoredClient, split_secret
from hearthnet.gateway.auth.client_tokens import TOKEN_SECONDS, allowed, everything, session_token
from hearthnet.gateway.auth.home_persons import Limits, check_hours
from hearthnet.gateway.auth.page_keys import PageKeys
from hearthnet.gateway.http.rate_limits import RateLimits, address_of
from hearthnet.gateway.http.signed_request import check_envelope
from hearthnet.protocol.replay import ReplayWindow
from hearthnet.trust.authorization.token import OWNER, SCHEME, Claims, Scope
from hearthnet.trust.community.person_statements import REMOVED_DEVICE
from hearthnet.trust.community.roster import RANK

_RENEW_MS: Final = 10 * 60_000
_NOBODY: Final = (
    "say who you are: open the link that `hearthnet link` prints, or send an Authorization header with a key "
    "of `hearthnet clients add`"
)


class Client(msgspec.Struct, frozen=True):
    """The client of a request.

    `principal` is as trust.authority gives it: `<node id>/<guest>`, or a node id for a member's own key.
    `key` is the node id whose signature counts for approvals, empty where the gateway approves. `expires_at`
    is in Unix ms. `bearer` is the token that the client sent, where it is not of the book; it must not be
    logged or returned. `is_page`: a page with a key of its own, opened by a link; `is_owner`: by the
    node's owner. That one sees and decides what waits for the owner at the command line
    (docs/decisions/0164); no program's key and no token has this. `person` is the person whose page it is,
    the owner or another one of the home, empty for all others; `limits` are those of a child.
    """

    id: str
    name: str
    principal: str
    key: str
    scope: Scope
    expires_at: int
    bearer: str = ""
    is_owner: bool = False
    is_page: bool = False
    person: str = ""
    limits: Limits | None = None

    def __repr__(self) -> str:
        return f"Client({self.id}, {self.principal})"

    @property
    def account(self) -> str:
        """Whose requests, answers and streams its own are counted with.

        Clients of another node count as that node, which can sign any number of tokens.
        """
        return self.principal.partition("/")[0] if self.bearer else self.id

    @property
    def payer(self) -> str:
        """Whose runs and streams its own are counted with: its principal, or the other node it comes from."""
        return self.account if self.bearer else self.principal

    def check_covers(self, capability: str) -> None:
        """Check that the scope covers `name@major.minor`, or some version of a bare name.

        Providers check it again. It is checked before anything is sent about the name.

        Raises:
            HearthNetError: `token_scope_insufficient` if it does not.
        """
        if not self.scope.covers_name(capability):
            raise scope_error(capability)


class Account(msgspec.Struct, frozen=True):
    """To whom bodies and sockets are counted, under `key`.

    `is_proved` where the head of the request alone says who the client is.
    """

    key: str
    is_owner: bool = False
    is_proved: bool = True


def scope_error(capabilities: str) -> HearthNetError:
    """Return the error for capabilities that a client's scope does not cover."""
    return HearthNetError("token_scope_insufficient", f"what you may do here does not cover {capabilities}")


class Clients:
    """The authentication of clients, and their tokens."""

    def __init__(
        self,
        peer: Session,
        book: ClientStore,
        limits: RateLimits | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.book = book
        self.page_keys = PageKeys(peer, book.persons)
        self.limits = limits or RateLimits()
        self.cookie = f"hearthnet_client_{ids.short_id(peer.node_id)[8:12].lower()}"
        """The cookie's name; cookies do not depend on ports, and one computer may run several nodes."""
        self._peer = peer
        self._clock = clock
        self._seen = ReplayWindow()
        self._minted: dict[str, tuple[tuple[StoredClient, Scope], str, int]] = {}
        self.more_capabilities: Callable[[], Iterable[str]] = tuple
        """Returns capabilities of the owner's own pages that have no installed contract."""

    async def from_request(
        self, connection: HTTPConnection, shown: str = "", *, at_any_hour: bool = False
    ) -> Client:
        """Return the client of a request, by its Authorization header or its cookie.

        `shown` is a key or session token that came in another place; it serves where both are missing.

        Raises:
            HearthNetError: `unauthorized`, `token_expired`, `token_revoked` and other errors of a token;
                `revoked` for a device that its person removed; `rate_limited` for a client with too many
                requests, an address with too many wrong keys, and a child outside of its hours.
        """
        try:
            client = self._authenticated(connection, shown)
        except HearthNetError:
            # Only failures count against an address: a valid client there is not slowed down by them.
            self.limits.wrong(address_of(connection))
            raise
        self.limits.request(client.account)
        if not at_any_hour:
            check_hours(client.limits, self._clock())
        return client

    def account(self, connection: HTTPConnection) -> Account:
        """Return to whom the body of a request is counted.

        Clients of other nodes count by the node that signed their token, which could make any number of them.
        Nothing is counted here. Raises as `from_request`, and takes the token of a member, too: its requests
        count by their address, because whoever reads a token on its way could show it.
        """
        token = self.member_token(connection)
        if token:
            self._proved(token)
            return Account(f"member at {address_of(connection)}", is_proved=False)
        client = self._authenticated(connection, "")
        if client.bearer:
            return Account(client.account)
        return Account(client.id, is_owner=client.principal == f"{self._peer.node_id}/{OWNER}")

    def member_token(self, connection: HTTPConnection) -> str:
        """Return the token of a member in the Authorization header, empty where there is none.

        It counts only with a call that the member's key has signed, and lets the body of that call be read.
        """
        kind, _, shown = connection.headers.get("authorization", "").partition(" ")
        token = shown.strip() if kind.lower() == "bearer" else ""
        return token if token and not self.is_bearer(token) else ""

    def is_bearer(self, shown: str) -> bool:
        """Return whether `shown` alone identifies the client: a key or a session token.

        The token of a member counts only with a call that its key has signed. Malformed text is treated as a
        bearer, so that `from_request` refuses it and counts it against its address.
        """
        if not (shown.startswith(SCHEME) and shown.isascii()):
            return bool(shown)
        try:
            return self._peer.tokens.claims(shown).kind == "session"
        except HearthNetError:
            return True

    def _authenticated(self, connection: HTTPConnection, elsewhere: str) -> Client:
        header = connection.headers.get("authorization")
        if header is not None:  # an empty one must not be a way to let a cookie count
            kind, _, shown = header.partition(" ")
            if kind.lower() != "bearer":
                raise HearthNetError("unauthorized", "Authorization takes the form: Bearer KEY")
            return self._from_bearer(shown.strip())
        cookie = connection.cookies.get(self.cookie)
        if not cookie:
            if elsewhere:
                return self._from_bearer(elsewhere)
            raise HearthNetError("unauthorized", _NOBODY)
        return self._admitted(self.book.prove(*split_secret(cookie)))

    def from_envelope(self, envelope: Mapping[str, Any], client: Client | None) -> Client:
        """Return the client that makes the call in `envelope`.

        `client` is the client of the request, None where the request did not identify one. A call must be
        signed by a client with a key, and by no other. Raises the errors of `check_envelope` and of a
        member's token.
        """
        member = client is None
        client = client or self._from_member_key(envelope)
        if client.key:
            check_envelope(envelope, client.key, self._peer.community, self._seen, self._clock())
            if member:
                self.limits.request(client.key)
        elif "signature" in envelope or "from" in envelope:
            raise HearthNetError("bad_request", "this client has no key, and its calls no signature")
        return client

    def _admitted(self, entry: StoredClient) -> Client:
        self._check_device(entry)
        return self.of(entry)

    def _check_device(self, entry: StoredClient) -> None:
        """Refuse a device that its person removed, and the pages of a person that this home no longer has.

        Raises:
            HearthNetError: `revoked`; as `PageKeys.check`.
        """
        if entry.key and self._peer.roster.is_removed_device(entry.key):
            raise HearthNetError("revoked", REMOVED_DEVICE)
        if entry.made_by == "link":
            self.page_keys.check(entry.principal, entry.key)
        somebody = self.book.persons.find(entry.principal)
        if somebody is not None and somebody.removed_at:
            raise HearthNetError("revoked", f"{somebody.name} is no person of this home any more")

    def count_question(self, client: Client) -> None:
        """Count a question of a child; raises as `HomePersons.count_question`."""
        somebody = self.book.persons.find(client.principal.rpartition("/")[2]) if client.limits else None
        if somebody is not None:
            self.book.persons.count_question(somebody, self._clock())

    def of(self, entry: StoredClient) -> Client:
        """Return the client for an `entry` of the book."""
        somebody = self.book.persons.find(entry.principal)
        is_page = entry.made_by == "link" and bool(entry.key)
        return Client(
            id=entry.id,
            name=entry.name,
            principal=f"{self._peer.node_id}/{entry.principal}",
            key=entry.key,
            scope=self.scope_of(entry),
            expires_at=entry.expires_at,
            is_owner=is_page and entry.principal == OWNER,
            is_page=is_page,
            person=self.page_keys.person_at(entry.principal) if is_page else "",
            limits=None if somebody is None else somebody.limits,
        )

    def with_key(self, principal: str, key: str) -> Client | None:
        """Return the client of the book that approves for `principal` with `key`, if any."""
        now = self._clock()
        for entry in self.book.entries():
            client = self.of(entry)
            if (client.principal, client.key) == (principal, key) and entry.expires_at > now:
                return client
        return None

    def token(self, client: Client) -> str:
        """Return the token for calls of `client`.

        A token made here is valid for at least five more minutes, or until the end of a child's hours.

        Raises:
            HearthNetError: `unauthorized` if the client was removed, `revoked` if its person removed the
                device; `token_expired` if it has expired; `rate_limited` outside of a child's hours.
        """
        now = self._clock()
        if client.bearer:
            if client.expires_at <= now:
                raise HearthNetError(
                    "token_expired", "the token's life is over; ask its issuer for a new one"
                )
            return client.bearer
        entry = self.book.find(client.id)
        self._check_device(entry)
        somebody = self.book.persons.find(entry.principal)
        open_ms = None if somebody is None else check_hours(somebody.limits, now)
        wanted = entry, self.scope_of(entry)
        known, token, until = self._minted.get(client.id, (None, "", 0))
        if known != wanted or not 0 <= until - now - _RENEW_MS <= TOKEN_SECONDS * 1000:
            seconds = TOKEN_SECONDS if open_ms is None else min(TOKEN_SECONDS, max(1, open_ms // 1000))
            token, until = self._mint(entry, now, seconds), now + seconds * 1000
            self._minted[client.id] = wanted, token, until
        return token

    def shut_out(self, clients: Iterable[Client]) -> dict[str, HearthNetError]:
        """Return the errors of those of `clients` that are no longer admitted, by their ids.

        They were removed or revoked, or have expired.
        """
        now = self._clock()
        found: dict[str, HearthNetError] = {}
        for client in clients:
            try:
                self._still(client, now)
            except HearthNetError as error:
                found[client.id] = error
        return found

    def _still(self, client: Client, now: int) -> None:
        if client.bearer:
            self._proved(client.bearer)
            return
        self._check_device(self.book.find(client.id))
        check_hours(client.limits, now)

    def scope_of(self, entry: StoredClient) -> Scope:
        """Return the present scope of a client of the book."""
        if entry.scope.capabilities:
            return entry.scope
        somebody = self.book.persons.find(entry.principal)
        if somebody is not None and somebody.limits is not None:
            return msgspec.structs.replace(entry.scope, capabilities=allowed(somebody.limits))
        more = self.more_capabilities() if entry.principal == OWNER else ()
        return msgspec.structs.replace(entry.scope, capabilities=(*everything(), *more))

    def _mint(self, entry: StoredClient, now: int, seconds: int) -> str:
        if len(self._minted) > 2 * len(self.book.ids()):
            known = set(self.book.ids())
            self._minted = {name: held for name, held in self._minted.items() if name in known}
        peer = self._peer
        return session_token(peer.identity, peer.community, entry, self.scope_of(entry), now, seconds)

    def _from_bearer(self, shown: str) -> Client:
        if shown.startswith(SECRET_PREFIX):
            return self._admitted(self.book.prove(*split_secret(shown.removeprefix(SECRET_PREFIX))))
        if not shown.startswith(SCHEME):
            raise HearthNetError("unauthorized", "this is no key and no token of HearthNet")
        claims = self._proved(shown)
        if claims.kind != "session":
            raise HearthNetError("unauthorized", "this token counts only with a call that its key has signed")
        if claims.iss == self._peer.node_id and self.book.persons.find(claims.principal) is not None:
            raise HearthNetError("unauthorized", "a person of this home signs in at a page, and by no token")
        # Refuse the tokens that this gateway makes: every provider of a client's call has received one.
        if claims.iss == self._peer.node_id and claims.issued_via is None:
            raise HearthNetError(
                "unauthorized", "the gateway calls by this token itself; show the key that you were given"
            )
        key = claims.cnf.key if claims.cnf is not None else ""
        return self._guest(shown, claims, f"{claims.iss}/{claims.principal}", key, claims.principal)

    def _from_member_key(self, envelope: Mapping[str, Any]) -> Client:
        """Return the member who calls with its own key; its token lets this node pass the call on."""
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
        """Return the claims of a token that is valid now, for this node.

        Each provider checks the token again.
        """
        if not shown.isascii():
            raise HearthNetError("bad_request", "the token is malformed")
        claims, peer = self._peer.tokens.claims(shown), self._peer
        claims.check_use(caller=peer.node_id, community=peer.community, now_ms=self._clock())
        if peer.membership.revocations.revoked(claims.iss, claims.jti):
            raise HearthNetError("token_revoked", "the token was revoked")
        if claims.cnf is not None and peer.roster.is_removed_device(claims.cnf.key):
            raise HearthNetError("revoked", REMOVED_DEVICE)
        issuer = peer.membership.status(claims.iss)
        if issuer.revoked or RANK.get(issuer.level, 0) < RANK["member"]:
            raise HearthNetError("unauthorized", "the token's issuer is no member of this community")
        return claims
