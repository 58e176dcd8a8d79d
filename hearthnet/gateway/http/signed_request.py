"""The signed call of a client that has a key: signer, freshness and single use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import from_rfc3339
from hearthnet.protocol.replay import WINDOW_MS, ReplayWindow
from hearthnet.trust.keys import verify

PURPOSE: Final = "gateway call"
_LEAST_WAIT_MS: Final = 250
SIGNED: Final = ("capability", "version", "request_id", "from", "community", "timestamp", "body")


def check_envelope(
    envelope: Mapping[str, Any], key: str, community: str, seen: ReplayWindow, now_ms: int
) -> None:
    """Check that the holder of `key` signed `envelope` for `community` just now, and once.

    Raises:
        HearthNetError: `bad_request` for a missing or invalid field; `invalid_signature` for another key or
            community, a signature that does not verify, or a repetition; `expired` if its time is not the
            present; `rate_limited` if the key has made too many calls since.
    """
    if envelope.get("from") != key:
        raise HearthNetError("invalid_signature", "the call is not from the key that this client has")
    data = signed_part(envelope)
    text = str(envelope.get("signature", ""))
    if not text.startswith(ids.PREFIX):
        raise HearthNetError("invalid_signature", "this client's calls are signed by its key")
    if not verify(key, PURPOSE, data, ids.unb64(text.removeprefix(ids.PREFIX))):
        raise HearthNetError("invalid_signature", "the signature does not fit the call")
    if envelope["community"] != community:
        raise HearthNetError("invalid_signature", "the call is for another community")
    request_id = envelope["request_id"]
    if not (isinstance(request_id, str) and ids.is_ulid(request_id)):
        raise HearthNetError("bad_request", "request_id is no ULID", details={"path": "/request_id"})
    made_ms = from_rfc3339(str(envelope["timestamp"]))
    verdict = seen.check(key, request_id, made_ms, now_ms)
    if verdict == "stale":
        raise HearthNetError(
            "expired",
            f"the call was not made now (more than {WINDOW_MS // 1000} s off); set the clock that is wrong",
            details={"now": now_ms},
        )
    if verdict == "crowded":
        raise HearthNetError(
            "rate_limited",
            "this key has made too many calls since: a repetition would not be told apart; call again",
            retry_after_ms=max(_LEAST_WAIT_MS, seen.wait_ms(key, made_ms)),
        )
    if verdict == "replayed":
        raise HearthNetError("invalid_signature", "this call was made before; a new one has a new request_id")


def signed_part(envelope: Mapping[str, Any]) -> bytes:
    """Return the bytes that the caller signs.

    Raises:
        HearthNetError: `bad_request` for a missing field.
    """
    missing = [name for name in SIGNED if name not in envelope]
    if missing:
        raise HearthNetError(
            "bad_request", f"the call has no {missing[0]}", details={"path": f"/{missing[0]}"}
        )
    return canonical_json({name: envelope[name] for name in SIGNED})
