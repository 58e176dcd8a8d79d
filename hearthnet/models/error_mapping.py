"""The wire codes of a server's failures: the one translation for all vendors.

    400, 413, 422   bad_request     the server's message, cut; with `details.rule` if the context is too long
    401, 403        unauthorized    names the environment variable, never the key
    404             not_found       model or address
    429             rate_limited    with the server's own retry-after
    503, 529        capacity_exceeded, likewise
    408, 504        timeout
    other           internal_error
    inside a 200    by the status or the type it names, else internal_error
    no connection   partition, with a remedy; silence is a timeout; an answer that breaks off is
                    internal_error

See: docs/vendors.md#what-a-failure-means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

from hearthnet.core.errors import CONTEXT_LENGTH, HearthNetError, Timeout, Unavailable

_MESSAGE_LIMIT: Final = 300
_DEFAULT_WAIT_MS: Final = 1000
_CODES: Final[dict[int, str]] = {
    400: "bad_request",
    401: "unauthorized",
    403: "unauthorized",
    404: "not_found",
    408: "timeout",
    413: "bad_request",
    422: "bad_request",
    429: "rate_limited",
    503: "capacity_exceeded",
    504: "timeout",
    529: "capacity_exceeded",
}
_TYPES: Final = (
    ("rate_limit", "rate_limited"),
    ("throttl", "rate_limited"),
    ("overloaded", "capacity_exceeded"),
    ("unavailable", "capacity_exceeded"),
    ("notready", "capacity_exceeded"),
    ("quota", "rate_limited"),
    ("authentication", "unauthorized"),
    ("accessdenied", "unauthorized"),
    ("unrecognizedclient", "unauthorized"),
    ("permission", "unauthorized"),
    ("not_found", "not_found"),
    ("notfound", "not_found"),
    ("timeout", "timeout"),
    ("invalid_request", "bad_request"),
    ("validation", "bad_request"),
)
"""A part of the type of an error inside an answer, and its code; the first match applies."""
_RETRY_DELAY: Final = re.compile(rb'"retryDelay":\s*"((?:\d+(?:\.\d+)?(?:ms|s|m|h))+)"')
_DURATION: Final = re.compile(r"((?:\d+(?:\.\d+)?(?:ms|s|m|h))+)")
_UNITS: Final = {"ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0}
_WORDS: Final = ("error", "message", "Message", "detail", "errors", "msg")
"""The fields in which servers describe an error; the first that is not empty applies."""
_WAITING: Final = ("rate_limited", "capacity_exceeded")
_MENDS: Final = {
    "unauthorized": "check the key in {variable}",
    "not_found": "check its model and its url in hearthnet.toml",
}
_OVERFLOW: Final = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|(maximum|available) (context|prompt|model) (length|size|window)"
    r"|exceed\w* (the |this |your )?(\w+'s )?(available |max(imum)? )?context"
    r"|context (length|size|window|limit) (is |was )?exceeded"
    r"|greater than the context length|context length of only"
    r"|(prompt|input)( is|:)? too long|too many (input |prompt )?tokens|input token count"
    r"|reduce the length of the (messages|prompt|input)"
    r"|inputs`? (tokens \+|must have less than)",
    re.IGNORECASE,
)
"""Messages of vendors and compatible servers for a conversation longer than the context."""
_OVERFLOWING: Final = frozenset({"bad_request", "internal_error"})
_REQUEST_MENDS: Final = (
    (re.compile(r"context|too (long|many tokens|large)|exceed|token count", re.I), "shorten the messages"),
    (re.compile(r"tool|function|schema", re.I), "change the tool or leave it out"),
    (re.compile(""), "change the request, or ask another model"),
)
"""The remedy by the message of a server that refuses a request; the first match applies."""


def of_status(
    model: str, status: int, headers: Mapping[str, str], body: bytes, key_variable: str
) -> HearthNetError:
    """Return the error for an unsuccessful answer.

    `key_variable` is the name of the key's variable, or empty.
    """
    code, said = _CODES.get(status, "internal_error"), _server_message(body)
    code, details = _classify(code, said, _named(_error_of(body)))
    mend = "shorten the messages" if details else _mend(code, said, key_variable)
    message = f"{model}: the server answered {status}: {said}{mend and '; '}{mend}"
    wait = _wait(headers, body) if code in _WAITING else None
    return HearthNetError(code, message, retry_after_ms=wait, details={"status": status, **details})


def _classify(code: str, message: str, named: str) -> tuple[str, dict[str, Any]]:
    """Return the code, and the details by which clients recognise a context that is too long."""
    if code in _OVERFLOWING and _OVERFLOW.search(f"{named} {message}"):
        return "bad_request", {"rule": CONTEXT_LENGTH}
    return code, {}


def _mend(code: str, message: str, key_variable: str) -> str:
    """Return the remedy, if one follows from the code and the server's message."""
    if code == "unauthorized" and not key_variable:
        return "it wants a key: name its variable with --key-env, or as api_key_env in the config"
    if code == "bad_request":
        return next(mend for words, mend in _REQUEST_MENDS if words.search(message))
    return _MENDS.get(code, "").format(variable=key_variable)


def of_error_in_stream(model: str, error: Any) -> HearthNetError:
    """Return the error for one that the server reports inside an answer that began well."""
    return of_error(model, _status(error), _server_message(json.dumps(error).encode()), _named(error))


def of_error(model: str, status: int | None, message: str, named: str = "") -> HearthNetError:
    """Return the error inside an answer: by its HTTP `status` if it has one, else by `named`."""
    kind = named.lower()
    code = next((code for part, code in _TYPES if part in kind), "internal_error")
    code = code if status is None else _CODES.get(status, "internal_error")
    code, details = _classify(code, message, named)
    wait = _DEFAULT_WAIT_MS if code in _WAITING else None
    return HearthNetError(
        code,
        f"{model}: the server reported in mid-answer: {message or 'nothing'}",
        retry_after_ms=wait,
        details=details,
    )


def unreachable(model: str, url: str) -> HearthNetError:
    """Return the error for a server to which no connection can be made."""
    mend = "start its server, or check its url in hearthnet.toml"
    return Unavailable(
        f"the model {model} cannot be reached at {_host(url)}; {mend}",
        details={"rule": "backend_gone", **_where(model, url)},
    )


def silent(model: str, url: str) -> HearthNetError:
    """Return the error for a server that accepted the request and does not answer."""
    message = f"the model {model} does not answer at {_host(url)}; ask again later"
    return Timeout(message, details=_where(model, url))


def broken_off(model: str, url: str) -> HearthNetError:
    """Return the error for a server that closed the connection."""
    return Unavailable(
        f"the server of the model {model} at {_host(url)} hung up; ask again",
        details={"rule": "backend_gone", **_where(model, url)},
    )


def _where(model: str, url: str) -> dict[str, str]:
    return {"model": model, "host": _host(url)}


def _host(url: str) -> str:
    """Return host and port, without the login that may precede them."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _status(error: Any) -> int | None:
    """Return the HTTP status that an error names."""
    if isinstance(error, Mapping):
        for key in ("status_code", "code", "status", "http_code"):
            value = str(error.get(key, ""))
            if len(value) == 3 and value.isdigit() and value[0] in "45":
                return int(value)
    return None


def _named(error: Any) -> str:
    """Return the kind of error that it names."""
    if not isinstance(error, Mapping):
        return ""
    return " ".join(str(error.get(key) or "") for key in ("type", "code", "status"))


def _error_of(body: bytes) -> Any:
    """Return the object that describes the error in an answer, in the form of most vendors."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return None
    return value.get("error", value) if isinstance(value, Mapping) else value


def _server_message(body: bytes) -> str:
    """Return the server's message, in one line and without its markup."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = "an HTML page" if text[:1] == "<" else text
    while isinstance(value, Mapping) and (found := [value[key] for key in _WORDS if value.get(key)]):
        value = found[0]
    if isinstance(value, list) and value:
        return _server_message(json.dumps(value[0]).encode())
    return " ".join(str(value).split())[:_MESSAGE_LIMIT] or "nothing"


def _wait(headers: Mapping[str, str], body: bytes) -> int:
    """Return the milliseconds until a retry is worthwhile, by the headers, else by the body."""
    for name, factor in (("retry-after-ms", 1.0), ("retry-after", 1000.0)):
        try:
            return max(0, round(float(headers[name]) * factor))
        except (KeyError, ValueError):
            continue
    delay = _RETRY_DELAY.search(body) or _DURATION.fullmatch(headers.get("x-ratelimit-reset-requests", ""))
    return _until(headers) or (_milliseconds(delay) if delay else None) or _DEFAULT_WAIT_MS


def _until(headers: Mapping[str, str]) -> int | None:
    """Return a wait that ends at a time of day, by the server's own clock."""
    try:
        end, now = (parsedate_to_datetime(headers[name]) for name in ("retry-after", "date"))
    except (KeyError, ValueError):
        return None
    return max(0, round((end - now).total_seconds() * 1000))


def _milliseconds(delay: re.Match[Any]) -> int:
    """Parse a duration such as 12s, 1m30s or 250ms."""
    text = delay[1].decode() if isinstance(delay[1], bytes) else delay[1]
    pieces = re.findall(r"([\d.]+)(ms|s|m|h)", text)
    return round(sum(float(number) * _UNITS[unit] for number, unit in pieces))
