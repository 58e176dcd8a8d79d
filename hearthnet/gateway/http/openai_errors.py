"""Errors in OpenAI's form, with the mesh's codes and status (docs/gateway.md, "OpenAI")."""

from __future__ import annotations

from typing import Any, Final

from hearthnet.core.errors import CONTEXT_LENGTH, MINE, WORLD, HearthNetError

_TYPES: Final = {
    "unauthorized": "permission_error",
    "revoked": "permission_error",
    "token_scope_insufficient": "permission_error",
    "token_invalid": "authentication_error",
    "token_expired": "authentication_error",
    "token_revoked": "authentication_error",
    "rate_limited": "rate_limit_error",
    "not_found": "not_found_error",
}


def error_body(error: HearthNetError) -> dict[str, Any]:
    """Return the error in OpenAI's form, with further details of the mesh.

    {"error": {"message", "type", "param", "code", ...}}
    """
    told: dict[str, Any] = {
        "message": error.message,
        "type": _type(error.code),
        "param": param_of(error) or ("messages" if _is_overlong(error) else None),
        # OpenAI's own code where clients act on it: they shorten the conversation and repeat the request.
        "code": "context_length_exceeded" if _is_overlong(error) else error.code,
    }
    more = error.to_body()
    extra = {name: more[name] for name in ("retry_after_ms", "alt_capabilities") if name in more}
    return {"error": told | extra}


def param_of(error: HearthNetError) -> str:
    """Return the place of `error` in the request, in OpenAI's form: `messages[0].content`."""
    path = str(error.details.get("path", "")).removeprefix("/input").removeprefix("/params")
    steps = [f"[{step}]" if step.isdigit() else f".{step}" for step in path.split("/") if step]
    return "".join(steps).removeprefix(".")


def _is_overlong(error: HearthNetError) -> bool:
    return error.details.get("rule") == CONTEXT_LENGTH


def _type(code: str) -> str:
    if code in _TYPES:
        return _TYPES[code]
    if code in MINE:
        return "invalid_request_error"
    return "service_unavailable_error" if code in WORLD else "server_error"
