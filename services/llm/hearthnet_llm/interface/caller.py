"""The rights of a call's caller over the media that it names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from hearthnet import Call, HearthNetError, NodeContext
from hearthnet.bus import Blob
from hearthnet_llm.interface.request import ChatRequest

OpenBlob = Callable[[str], Awaitable[Blob]]


async def _no_blob(cid: str) -> Blob:
    raise HearthNetError("not_found", f"there is no store here to read {cid} from")


class Caller(msgspec.Struct, frozen=True):
    """What a caller may have read: by default nothing.

    `open_blob` opens a blob that the caller may read, as `NodeContext.open_blob`. `is_here`: the call comes
    from this node, in the name of the node or of a client of its gateway. `is_node`: in the name of the node.
    `account` is who shares the time for images: a node with its guests, or a client of this node.
    """

    open_blob: OpenBlob = _no_blob
    is_here: bool = False
    is_node: bool = False
    account: str = ""


NOBODY = Caller()


class CallerRequest(ChatRequest, frozen=True, kw_only=True):
    """A request with the rights of its caller, which go with it to the model; made by this service alone."""

    caller: Caller = NOBODY


def with_caller(request: ChatRequest, call: Call[Any, Any], node: NodeContext) -> CallerRequest:
    """Return the request with the rights of the caller of `call`."""
    own = node.identity.node_id
    # Not the caller alone: `llm.tools.call` makes this node call in the name of another node.
    is_here = call.caller == own == call.principal.partition("/")[0]
    caller = Caller(
        partial(node.open_blob, call=call),
        is_here=is_here,
        is_node=node.is_self(call),
        account=call.principal if is_here else call.principal.partition("/")[0],
    )
    return CallerRequest(**msgspec.structs.asdict(request), caller=caller)


def caller_of(request: ChatRequest) -> Caller:
    """Return the rights of the request's caller; none for a request that was made here."""
    return request.caller if isinstance(request, CallerRequest) else NOBODY
