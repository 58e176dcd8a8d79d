"""Tokens: signed, narrow, short-lived authority, as JWS compact.

    hntoken://v1/<header>.<payload>.<signature>

    grant      a member permits a node to call some capabilities for a while
    session    a member permits a gateway's node to act for a guest, named `principal`; `cnf` is its key
    run        the owner of a tool loop permits its executor to call one run's tools; `run` names it

The algorithm is never read from the token: any header but the one below is refused. So is an unknown claim,
which may be a limit: ignoring a limit would grant a right that the issuer did not give.

See: docs/protocol/tokens.md#format, docs/protocol/tokens.md#verification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json, refuse_repeated_keys
from hearthnet.core.capability_name import Capability, Count, split_name
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.constraints import Constraints
from hearthnet.trust.keys import Identity, verify_raw

SCHEME: Final = "hntoken://v1/"
MAX_BYTES: Final = 2048
SKEW_SECONDS: Final = 60
MAX_TTL_SECONDS: Final = 86_400
MOST_EFFECTS: Final = 1_000
BEARER: Final = "*"
OWNER: Final = "owner"
"""The guest name under which the pages of a node's owner act."""
MOST_REMEMBERED: Final = 1_024
_HEADER: Final = ids.b64(b'{"alg":"EdDSA","typ":"hntoken","v":1}')
_WHOLE_SERVER: Final = re.compile(r"(experimental\.mcp\.[a-z0-9_-]{1,32})\.\*")
_PRINCIPAL: Final = re.compile("[A-Za-z0-9._-]{1,64}")

TokenKind = Literal["grant", "session", "run"]
IssuedVia = Literal["manual", "onboarding", "relay", "federation"]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]


class Scope(msgspec.Struct, frozen=True, dict=True, omit_defaults=True, forbid_unknown_fields=True):
    """The extent of a token.

    `capabilities` are names with or without a version, and `experimental.mcp.NAME.*` for all tools of the MCP
    server NAME, later ones included (docs/decisions/0150). A key of `params_constraints` is a member of
    `params`, or `input.` and one of `input`. The three limits apply per provider node (docs/decisions/0041);
    None is no limit. `max_effects` counts effects by their idempotency key, so that a repetition is not
    counted twice.
    """

    capabilities: tuple[str, ...]
    params_constraints: dict[str, list[Any]] = {}
    rate_limit_per_minute: AtLeastOne | None = None
    max_calls_total: AtLeastOne | None = None
    max_effects: Annotated[int, msgspec.Meta(ge=0, le=MOST_EFFECTS)] | None = None

    def check(self) -> None:
        """Check that the scope is well-formed.

        Raises:
            HearthNetError: `bad_request` for text that names no capability, and values without canonical
                JSON.
        """
        _ = self._named, self._servers, self.constraints

    def covers(self, capability: Capability) -> bool:
        """Return whether the token covers an offer of `capability`, by the version rule.

        A bare name covers every version (docs/protocol/tokens.md#scope).
        """
        for version in self._named.get(capability.name, ()):
            if version is None or (capability.major == version[0] and capability.minor >= version[1]):
                return True
        return capability.name.rpartition(".")[0] in self._servers

    def covers_name(self, text: str) -> bool:
        """Return whether the token covers `name@major.minor`, or some version of a bare `name`.

        Raises:
            HearthNetError: `bad_request` if `text` is not a capability.
        """
        name, version = split_name(text)
        if version is not None:
            return self.covers(Capability(name, *version))
        return name in self._named or name.rpartition(".")[0] in self._servers

    @cached_property
    def constraints(self) -> Constraints:
        """`params_constraints`, prepared for checking calls."""
        return Constraints(self.params_constraints)

    @cached_property
    def _named(self) -> dict[str, list[tuple[int, int] | None]]:
        """The versions of each name; None for every version."""
        named: dict[str, list[tuple[int, int] | None]] = {}
        for entry in self.capabilities:
            if whole_server(entry) is None:
                if "*" in entry:
                    raise HearthNetError(
                        "bad_request",
                        f"{entry[:80]!r} is not a capability; a wildcard stands for all tools of one MCP "
                        "server, as in experimental.mcp.NAME.*, and others are named one by one",
                    )
                name, version = split_name(entry)
                named.setdefault(name, []).append(version)
        return named

    @cached_property
    def _servers(self) -> frozenset[str]:
        """The common name prefix of each MCP server that is covered whole."""
        return frozenset(filter(None, map(whole_server, self.capabilities)))

    @cached_property
    def counted(self) -> bool:
        """True if calls under the token must be counted."""
        limits = (self.rate_limit_per_minute, self.max_calls_total, self.max_effects)
        return any(limit is not None for limit in limits)


def whole_server(entry: str) -> str | None:
    """Return `experimental.mcp.NAME` for `experimental.mcp.NAME.*`, None for any other entry.

    Such an entry of a scope covers all tools of the MCP server NAME.
    """
    found = _WHOLE_SERVER.fullmatch(entry)
    return found[1] if found else None


class Jwk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An Ed25519 public key in the form of JOSE (RFC 8037); `x` is base64url."""

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    x: str


class Confirmation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key whose holder the token is for (RFC 7800)."""

    jwk: Jwk

    @classmethod
    def of(cls, key: str) -> Confirmation:
        """Return the confirmation of a key in the form of a node id.

        Raises:
            HearthNetError: `bad_request` if it is not a node id.
        """
        return cls(Jwk("OKP", "Ed25519", ids.token_form(key)))

    @property
    def key(self) -> str:
        """The key in the form of a node id."""
        return ids.PREFIX + self.jwk.x


class Claims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A token's payload; times are Unix seconds, `run` names the run that it was made for."""

    iss: str
    sub: str
    aud: str
    iat: Count
    nbf: Count
    exp: Count
    jti: str
    scope: Scope
    run: str = ""
    principal: str = ""
    cnf: Confirmation | None = None
    issued_via: IssuedVia | None = None

    @property
    def kind(self) -> TokenKind:
        """The kind of the token."""
        if self.principal:
            return "session"
        return "run" if self.run else "grant"

    @property
    def on_behalf_of(self) -> str:
        """The principal of a call under this token.

        The issuer names it, so that two issuers cannot mean the same guest.
        """
        return f"{self.iss}/{self.principal}" if self.principal else self.iss

    def is_of_home(self, node: str, fields: Mapping[str, Any], guest: str = "") -> bool:
        """Return whether a call with `fields` under this token reaches an offer of `node` to its home alone.

        With `guest`, an offer to that person of the home alone.

        See: docs/protocol/admission.md#offers-to-the-home
        """
        if guest:
            return self.person_at(node) == guest
        return is_let_in(self.on_behalf_of, self.scope, node, fields)

    def person_at(self, node: str) -> str:
        """Return the guest of `node` that is a person of its home beside the owner; empty for all others.

        It has a key of its own, so that another client to which the owner gave the same name is not taken
        for it.
        """
        is_person = self.iss == node and self.cnf is not None and self.principal != OWNER
        return self.principal if is_person else ""

    def check_use(self, *, caller: str, community: str, now_ms: int) -> None:
        """Check that `caller` may present this token in `community` now.

        Raises:
            HearthNetError: `token_expired` before and after its lifetime; `unauthorized` for another
                community and for a bearer token; `invalid_signature` if it was issued to another node.
        """
        now = now_ms // 1000
        if now < self.nbf - SKEW_SECONDS:
            raise HearthNetError(
                "token_expired",
                "the token is not valid yet: its issuer's clock is ahead of ours; set the one that is wrong",
                details={"now": now_ms},
            )
        if now >= self.exp + SKEW_SECONDS:
            raise HearthNetError(
                "token_expired",
                "the token's life is over; ask its issuer for a new one",
                details={"now": now_ms},
            )
        if self.aud != community:
            raise HearthNetError("unauthorized", "the token is for another community")
        if self.sub == BEARER:
            raise HearthNetError("unauthorized", "a token for whoever holds it is taken from a bridge only")
        if self.sub != caller:
            raise HearthNetError("invalid_signature", "the token belongs to another node than the caller")


def mint(
    identity: Identity,
    *,
    subject: str,
    audience: str,
    scope: Scope,
    now_ms: int,
    ttl_seconds: int,
    run: str = "",
    principal: str = "",
    cnf: str = "",
    issued_via: IssuedVia | None = None,
) -> str:
    """Mint a token by which `identity` lets the node `subject` act for it for `ttl_seconds`.

    It is valid in the community `audience`. `principal` makes it a session token, `cnf` (a public key in the
    form of a node id) binds that session's approvals to the key; `run` makes it a run token.

    Raises:
        HearthNetError: `bad_request` for a lifetime over a day, a scope that names no capability, or a
            principal with a run; `payload_too_large` for a token over 2,048 bytes.
    """
    if not 0 < ttl_seconds <= MAX_TTL_SECONDS:
        raise HearthNetError(
            "bad_request", f"a token lives 1 to {MAX_TTL_SECONDS} seconds, not {ttl_seconds}"
        )
    now = now_ms // 1000
    claims = Claims(
        iss=identity.node_id,
        sub=subject,
        aud=audience,
        iat=now,
        nbf=now,
        exp=now + ttl_seconds,
        jti=ids.new_ulid(now_ms),
        scope=scope,
        run=run,
        principal=principal,
        cnf=Confirmation.of(cnf) if cnf else None,
        issued_via=issued_via,
    )
    _check_claims(claims)
    content = f"{_HEADER}.{ids.b64(msgspec.json.encode(claims))}"
    token = f"{SCHEME}{content}.{ids.b64(identity.sign_raw(content.encode('ascii')))}"
    if len(token) > MAX_BYTES:
        raise HearthNetError(
            "payload_too_large",
            f"the token has {len(token)} bytes, over {MAX_BYTES}; name fewer capabilities or shorter values",
        )
    return token


def decode(token: str) -> Claims:
    """Return the claims of a token signed by its issuer; ignores time, audience and scope.

    Raises:
        HearthNetError: `bad_request` if it is malformed; `token_invalid` for another header, a wrong
            signature or a lifetime over a day.
    """
    parts = token.removeprefix(SCHEME).split(".")
    if not token.startswith(SCHEME) or len(token) > MAX_BYTES or len(parts) != 3:
        raise HearthNetError("bad_request", f"the token is malformed ({SCHEME}… with three parts)")
    header, payload, signature = parts
    if header != _HEADER:
        raise HearthNetError("token_invalid", "the token's header is not ours: only EdDSA, version 1")
    content = ids.unb64(payload)
    try:
        claims = read_json(content, _DECODER)
        refuse_repeated_keys(content)
        _check_claims(claims)
    except HearthNetError as error:
        raise HearthNetError("bad_request", f"the token's claims are malformed: {error}") from error
    if not verify_raw(claims.iss, f"{header}.{payload}".encode("ascii"), ids.unb64(signature)):
        raise HearthNetError("token_invalid", "the token is not signed by its issuer")
    # From iat, too: a revocation is forgotten after a day, and no token may become valid only after that.
    if not claims.iat <= claims.nbf < claims.exp <= claims.iat + MAX_TTL_SECONDS:
        raise HearthNetError("token_invalid", "the token is not made for a life of up to a day")
    return claims


_DECODER: Final = msgspec.json.Decoder(Claims)


class Verified:
    """A cache of tokens that `decode` has accepted, to save the check of their signatures.

    Holds only the claims, which follow from the token's bytes. Time, revocations and roster are checked at
    each call.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self.claims: Final = lru_cache(most)(decode)


def _check_claims(claims: Claims) -> None:
    """Check claims of the right types for their meaning.

    Raises:
        HearthNetError: `bad_request` if they are inconsistent.
    """
    ids.public_key(claims.iss)
    claims.scope.check()
    if not ids.is_ulid(claims.jti):
        raise HearthNetError("bad_request", "jti is no ULID")
    if claims.principal:
        _check_session(claims)
    elif claims.cnf is not None:
        raise HearthNetError("bad_request", "cnf is a session's, which has a principal")


def is_owner(principal: str, node: str) -> bool:
    """Return whether `principal` is the owner of `node`, at its command line or its page."""
    return principal in (node, f"{node}/{OWNER}")


def is_let_in(principal: str, scope: Scope, node: str, fields: Mapping[str, Any]) -> bool:
    """Return whether `principal` with `scope` reaches an offer of `node` to its home alone.

    The owner does, and a guest whose scope allows exactly such values of `fields`; one that leaves them open
    does not. `fields` are named as in `params_constraints`.
    """
    if is_owner(principal, node):
        return True
    if principal.partition("/")[0] != node or not fields:
        return False
    allowed = scope.params_constraints
    return all(value in allowed.get(name, ()) for name, value in fields.items())


def check_principal(name: str) -> None:
    """Check that `name` is a valid name of a guest.

    Raises:
        HearthNetError: `bad_request` if it is not.
    """
    if not _PRINCIPAL.fullmatch(name):
        raise HearthNetError("bad_request", "a principal has 1 to 64 letters, digits, dots, '-' or '_'")


def _check_session(claims: Claims) -> None:
    check_principal(claims.principal)
    if claims.run:
        raise HearthNetError("bad_request", "a session's token is not bound to one run")
    if claims.cnf is not None:
        ids.public_key(claims.cnf.key)
