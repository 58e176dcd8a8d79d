"""The step of a trace that the running code belongs to, and steps that leave the mesh.

A context variable, so that the calls of a handler continue its caller's trace. It is below the bus because
the connections to models' servers need it too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

from hearthnet.telemetry.span import Detail, Kind, SpanRecord

_DRAWN_BYTES: Final = 4096

current: Final[ContextVar[SpanRecord | None]] = ContextVar("hearthnet_step", default=None)
"""The step that the running code belongs to."""
_spans: Final[list[str]] = []
"""Ids of spans, 16 hexadecimal digits each, drawn in blocks: one system call for each costs more."""
# A forked child must not draw the same ids as its parent.
os.register_at_fork(after_in_child=_spans.clear)


def new_span() -> str:
    """Return the id of a new span.

    Safe if other threads, with a bus of their own, draw from the same list.
    """
    try:
        return _spans.pop()
    except IndexError:
        digits = os.urandom(_DRAWN_BYTES).hex()
        first, *others = (digits[at : at + 16] for at in range(0, len(digits), 16))
        _spans.extend(others)
        return first


def traceparent_of(step: SpanRecord) -> str:
    """Return the `traceparent` for calls inside `step`: inside its method, at a provider."""
    if step.side != "provider":
        return step.traceparent
    if not step.handler:
        step.handler = new_span()
    above = step.above
    return f"{above[:36]}{step.handler}{above[52:]}"


def traceparent() -> str:
    """Return the `traceparent` for a request of the running code; empty outside of any step."""
    step = current.get()
    return "" if step is None or step.tracer is None else traceparent_of(step)


def describe(name: str, kind: Kind, attributes: dict[str, Any]) -> None:
    """Name the span of the method that answers the running call, and add to its attributes.

    Has no effect outside of a provider's method.
    """
    step = current.get()
    if step is None or step.side != "provider":
        return
    before = step.detail.attributes if step.detail is not None else {}
    step.detail = Detail(name=name, kind=kind, attributes={**before, **attributes})


@contextlib.contextmanager
def client_step(name: str, attributes: dict[str, Any], *, span: str = "") -> Iterator[SpanRecord | None]:
    """Record a request to a server outside of the mesh as a step below the running one.

    Yields None if there is no running step. `span` is its name in exported spans, which must not differ from
    server to server. The step is not the current one inside the block: an asynchronous generator, which may
    be closed by another task, could not restore the former one.
    """
    above = current.get()
    if above is None or above.tracer is None:
        yield None
        return
    tracer = above.tracer
    attributes = {name: value for name, value in attributes.items() if value}
    entry = tracer.step(
        name, above.run, traceparent_of(above), Detail(name=span, kind="client", attributes=attributes)
    )
    try:
        yield entry
    except BaseException as error:
        tracer.fail(entry, error)
        raise
    finally:
        tracer.end(entry)
