"""Errors for HTTP clients: one table from codes to statuses, and two forms of the body.

Paths under `/v1` that are not the gateway's own belong to OpenAI's API and have its form of errors. That
includes unknown paths, since only OpenAI's clients request them.
"""

from __future__ import annotations

import errno
import logging
from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import JSONResponse, Response

from hearthnet.agent.loop.happened import HAPPENED
from hearthnet.core import ids
from hearthnet.core.errors import CONTEXT_LENGTH, MINE, WORLD, HearthNetError
from hearthnet.gateway.http.sse import ClientGoneError

_log = logging.getLogger(__name__)

STATUS: Final[dict[str, int]] = {
    "bad_request": 400,
    "schema_mismatch": 400,
    "invalid_signature": 401,
    "unauthorized": 401,
    "token_invalid": 401,
    "token_expired": 401,
    "token_revoked": 401,
    "revoked": 403,
    "token_scope_insufficient": 403,
    "not_federated": 403,
    "not_found": 404,
    "thread_missing": 404,
    "expired": 410,
    "payload_too_large": 413,
    "rate_limited": 429,
    "internal_error": 500,
    "not_implemented": 501,
    "outcome_unknown": 502,
    "partition": 503,
    "capacity_exceeded": 503,
    "timeout": 504,
}
"""Total over the wire codes."""
CLIENT_GONE: Final = 499
_OPENAIS: Final = "/v1"
_SESSIONS: Final = ("device", "me", "objection", "session")
_NATIVE: Final = tuple(
    f"/v1/{name}" for name in ("call", "capabilities", "conversations", "runs", "socket", *_SESSIONS)
)
_FINAL: Final = frozenset({"internal_error", "not_implemented", "outcome_unknown"})
"""Errors that a repetition does not mend, although their status may suggest it to clients."""
_PHRASES: Final = {404: "there is nothing here", 405: "this is not asked that way"}
_CODES: Final = {404: "not_found", 405: "bad_request", 413: "payload_too_large", 401: "unauthorized"}


def is_openais(path: str) -> bool:
    """Return whether `path` belongs to OpenAI's API."""
    return _is_at(path, _OPENAIS) and not any(_is_at(path, own) for own in _NATIVE)


def response(error: HearthNetError, path: str, status: int = 0) -> JSONResponse:
    """Return the response for `error`, in the form of the API at `path`."""
    headers = {}
    if error.retry_after_ms is not None:
        headers["retry-after"] = str(max(1, -(-error.retry_after_ms // 1000)))
    status = status or STATUS[error.code]
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if not is_openais(path):
        return JSONResponse(error.to_body(), status, headers)
    if error.code in _FINAL:
        headers["x-should-retry"] = "false"
    return JSONResponse(error_body(error), status, headers)


def as_hearthnet_error(error: Exception) -> HearthNetError:
    """Return `error` as a `HearthNetError`.

    A full disk is an error of its own. Any other exception that is not foreseen is logged in full under an
    id, which is all that the client receives.
    """
    if isinstance(error, HearthNetError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        _log.error("the disk is full: %s", error)
        return HearthNetError("capacity_exceeded", "the disk of this node is full; make room, then repeat it")
    number = ids.new_ulid()
    _log.error("error %s", number, exc_info=error)
    return HearthNetError("internal_error", f"the gateway failed; its log has more under {number}")


async def on_error(connection: HTTPConnection, error: Exception) -> JSONResponse:
    """Handle an exception of a handler."""
    return response(as_hearthnet_error(error), connection.scope["path"])


async def on_http_error(connection: HTTPConnection, error: Exception) -> JSONResponse:
    """Handle an exception of Starlette, for an unknown path or method."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.BAD_REQUEST
    headers = getattr(error, "headers", None) or {}
    phrase = _PHRASES.get(status, HTTPStatus(status).phrase.lower())
    message = f"{phrase}: {connection.scope.get('method', '')} {connection.url.path[:200]}"
    path = connection.scope["path"]
    if status == HTTPStatus.NOT_FOUND and is_openais(path):
        message += "; of OpenAI's API there are /v1/models and /v1/chat/completions"
    answer = response(HearthNetError(_CODES.get(status, "bad_request"), message), path, status)
    answer.headers.update(headers)
    return answer


async def on_disconnect(_connection: HTTPConnection, _error: Exception) -> Response:
    """Handle the disconnection of the client; the response is never read."""
    return Response(status_code=CLIENT_GONE)


def _is_at(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


HANDLERS: Final[dict[Any, Any]] = {
    HTTPException: on_http_error,
    HearthNetError: on_error,
    ClientDisconnect: on_disconnect,
    ClientGoneError: on_disconnect,
    Exception: on_error,
}


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
    body: dict[str, Any] = {
        "message": error.message,
        "type": _type(error.code),
        "param": param_of(error) or ("messages" if _is_overlong(error) else None),
        # OpenAI's own code where clients act on it: they shorten the conversation and repeat the request.
        "code": "context_length_exceeded" if _is_overlong(error) else error.code,
    }
    more = error.to_body()
    extra = {name: more[name] for name in ("retry_after_ms", "alt_capabilities") if name in more}
    if HAPPENED in error.details:
        body[HAPPENED] = error.details[HAPPENED]
    return {"error": body | extra}


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
