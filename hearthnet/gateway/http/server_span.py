"""The trace span of a request, by OpenTelemetry's conventions for HTTP servers.

It continues the trace in the request's `traceparent`; whether it is exported is decided here. A request that
only reads has a span only if it has this header: a page that polls every second would displace all other
traces from memory.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import Scope

from hearthnet.bus.session.tracing import Traces, code_of
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.errors import STATUS
from hearthnet.telemetry import names
from hearthnet.telemetry.span import Detail, SpanRecord

STEP: Final = "hearthnet.step"
"""The key of the span in a request's scope, for parts that answer in another task."""
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS: Final = READING | {"POST", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE", "QUERY"}
_CONVERTER: Final = re.compile(r":\w+\}")
_SWITCHING: Final = 101
_FAILED: Final = 500
_LONGEST: Final = 200


@contextlib.contextmanager
def server_span(traces: Traces, scope: Scope, status: Callable[[], int]) -> Iterator[None]:
    """Open the span of one request or WebSocket.

    `status` returns the status of its response, 0 where none was sent.
    """
    named = Headers(scope=scope).getlist("traceparent")
    above = traces.foreign(named[0]) if len(named) == 1 else ""
    method = str(scope.get("method", "GET")).upper()
    if scope["type"] == "http" and method in READING and not above:
        yield
        return
    method = method if method in _METHODS else names.OTHER
    entry = traces.step(method, "", above)
    failure: BaseException | None = None
    try:
        with traces.activate(entry):
            scope[STEP] = entry
            yield
    except BaseException as error:
        failure = error
        raise
    finally:
        _describe(entry, scope, method, _status(scope, status(), failure))
        traces.end(entry)


def _status(scope: Scope, sent: int, failure: BaseException | None) -> int:
    if sent or failure is None:
        return sent or (_SWITCHING if scope["type"] == "websocket" else 0)
    return STATUS[failure.code] if isinstance(failure, HearthNetError) else STATUS.get(code_of(failure), 0)


def _describe(entry: SpanRecord, scope: Scope, method: str, status: int) -> None:
    """Name the span by its route, once that is known, and record its status."""
    route = _CONVERTER.sub("}", getattr(scope.get("route"), "path", ""))
    entry.capability = f"{'HTTP' if method == names.OTHER else method} {route}".strip()
    found = {**_of_request(scope), names.HTTP_METHOD: method, names.HTTP_ROUTE: route}
    if method == names.OTHER:
        found[names.HTTP_METHOD_ORIGINAL] = str(scope["method"])[:_LONGEST]
    if status:
        found[names.HTTP_STATUS] = status
    if status >= _FAILED:
        found[names.ERROR] = str(status)
        entry.code = entry.code or "internal_error"
    entry.detail = Detail(kind="server", attributes={name: value for name, value in found.items() if value})


def _of_request(scope: Scope) -> dict[str, Any]:
    """Return attributes of the request.

    Its query is left out: an old client may have put a key there.
    """
    headers = Headers(scope=scope)
    host, _, port = headers.get("host", "").rpartition(":")
    # `isdigit` accepts digits of Latin-1 such as ², which `int` refuses.
    if not (port.isascii() and port.isdigit()):
        host, port = headers.get("host", ""), ""
    return {
        names.URL_SCHEME: scope.get("scheme", ""),
        names.URL_PATH: scope["path"][:_LONGEST],
        names.HTTP_VERSION: scope.get("http_version", ""),
        names.SERVER_ADDRESS: host.strip("[]")[:_LONGEST],
        names.SERVER_PORT: int(port[:5]) if port else 0,
        names.CLIENT_ADDRESS: (scope.get("client") or ("", 0))[0],
        names.USER_AGENT: headers.get("user-agent", "")[:_LONGEST],
    }
