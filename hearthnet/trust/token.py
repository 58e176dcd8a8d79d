"""Tokens: signed, narrow, short-lived authority, as JWS compact (wire.md, "Tokens"; conventions.md 12).

    hntoken://v1/<header>.<payload>.<signature>

The algorithm is never read from the token: a header other than ours is refused whole. So is a claim that is
not known here: it may be a limit, and a limit that is passed over is a right that nobody gave.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet import ids
from hearthnet.canonical import read_json, refuse_repeated_keys
from hearthnet.errors import HearthNetError
from hearthnet.trust.keys import Identity, verify_raw
from hearthnet.types import Count, split_name

SCHEME: Final = "hntoken://v1/"
MAX_BYTES: Final = 2048
SKEW_SECONDS: Final = 60
MAX_TTL_SECONDS: Final = 86_400
_HEADER: Final = ids.b64(b'{"alg":"EdDSA","typ":"hntoken","v":1}')


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a token covers.

    A key of `params_constraints` is a member of `params`, or `input.` and one of `input`.
    """

    capabilities: tuple[str, ...]
    params_constraints: dict[str, list[Any]] = {}


class Claims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A token's payload; times are unix seconds. `run` names the tool loop's run that it was made for."""

    iss: str
    sub: str
    aud: str
    iat: Count
    nbf: Count
    exp: Count
    jti: str
    scope: Scope
    run: str = ""


def mint(
    identity: Identity, *, subject: str, audience: str, scope: Scope, now_ms: int, ttl_seconds: int, run: str
) -> str:
    """A token by which `identity` lets `subject` act for it in community `audience` for `ttl_seconds`.

    Raises `bad_request` for a life over a day or a scope that names no capability, and `payload_too_large`
    for a token over 2,048 bytes.
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
    )
    _check_claims(claims)
    content = f"{_HEADER}.{ids.b64(msgspec.json.encode(claims))}"
    token = f"{SCHEME}{content}.{ids.b64(identity.sign_raw(content.encode('ascii')))}"
    if len(token) > MAX_BYTES:
        raise HearthNetError(
            "payload_too_large",
            f"the token has {len(token)} bytes, over {MAX_BYTES}; declare fewer tools for this run",
        )
    return token


def decode(token: str) -> Claims:
    """The claims of a well-formed token whose issuer signed it. Says nothing of time, audience or scope.

    Raises `bad_request` for what is no token, `token_invalid` for another header, a wrong signature or a life
    over a day.
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
    if not 0 < claims.exp - claims.nbf <= MAX_TTL_SECONDS:
        raise HearthNetError("token_invalid", "the token is not made for a life of up to a day")
    return claims


_DECODER: Final = msgspec.json.Decoder(Claims)


def _check_claims(claims: Claims) -> None:
    """Raises `bad_request` for claims of the right types that still say nothing."""
    ids.public_key(claims.iss)
    for entry in claims.scope.capabilities:
        split_name(entry)
    if not ids.is_ulid(claims.jti):
        raise HearthNetError("bad_request", "jti is no ULID")


def check_use(claims: Claims, *, caller: str, community: str, now_ms: int) -> None:
    """Raises unless `caller` may show this token in `community` now: `token_expired`,
    `unauthorized`, `invalid_signature`.
    """
    now = now_ms // 1000
    if not claims.nbf - SKEW_SECONDS <= now < claims.exp + SKEW_SECONDS:
        raise HearthNetError("token_expired", "the token is outside its life; ask its issuer for a new one")
    if claims.aud != community:
        raise HearthNetError("unauthorized", "the token is for another community")
    if claims.sub != caller:
        raise HearthNetError("invalid_signature", "the token belongs to another node than the caller")
