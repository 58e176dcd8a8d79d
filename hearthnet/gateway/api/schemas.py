"""The schemas of the API description: those of the contracts, and of the gateway's own requests and answers.

msgspec makes the latter from Structs: those by which a request is read, and for answers those below, which
`tests/gateway/api/test_openapi.py` compares with the answers.
"""

from __future__ import annotations

import copy
import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from hearthnet.agent.tools.types import ClientCallRequest, PendingApproval
from hearthnet.contracts import Contract, contracts
from hearthnet.core.errors import CODES
from hearthnet.gateway.api.capabilities import is_for_clients, may_answer_whole
from hearthnet.gateway.openai.request import ChatCompletionRequest
from hearthnet.gateway.runs.calls import CallBody
from hearthnet.gateway.runs.requested_tools import OwnTool, ToolUse
from hearthnet.gateway.runs.routes import CallDecision, EditPreview
from hearthnet.gateway.runs.run import FollowUp

Schema = dict[str, Any]
CHAT: Final = "llm.chat"
_REF: Final = "#/components/schemas/"
_Object = dict[str, Any]
_Time = Annotated[int, Meta(ge=0, description="Milliseconds since the epoch")]


class _Offer(Struct):
    node: str
    instance: str
    params: _Object
    service: str = ""
    max_concurrent: int = 0
    in_flight: int = 0
    expires_at: _Time = 0


class _Capability(Struct, kw_only=True):
    capability: str
    name: str
    version: str
    summary: str
    side_effects: bool
    idempotent: str = ""
    trust_required: str = ""
    streams: bool
    timeout_seconds: float = 0
    request_schema: _Object
    response_schema: _Object = {}
    stream_schema: _Object | None = None
    offers: list[_Offer]


class _Capabilities(Struct):
    capabilities: list[_Capability]


class _Body(Struct):
    params: _Object
    input: _Object


class _Call(CallBody, frozen=True, rename={"sender": "from"}):
    sender: str = ""
    community: str = ""
    timestamp: str = ""
    token: str = ""
    signature: str = ""


class _Said(CallDecision, frozen=True):
    pass


class _Changed(EditPreview, frozen=True):
    pass


class _Answer(Struct):
    output: Any
    meta: _Object
    provider: str = ""
    run: str = ""
    requires_follow_up: bool = False


class _Error(Struct):
    error: Annotated[str, Meta(extra_json_schema={"enum": sorted(CODES)})]
    message: str
    details: _Object = {}
    retry_after_ms: Annotated[int, Meta(ge=0)] = 0
    alt_capabilities: list[str] = []


class _Pending(PendingApproval, frozen=True, kw_only=True):
    approval: Annotated[_Object | None, Meta(description="To be signed, where the client has a key")] = None


class _Wanted(ClientCallRequest, frozen=True, kw_only=True):
    pass


class _Waits(Struct, kw_only=True):
    requires_follow_up: Annotated[bool, Meta(extra_json_schema={"const": True})]
    run: str
    output: _Object = {}
    pending: list[_Pending]
    wanted: list[_Wanted]


class _Run(Struct):
    run: str
    principal: str
    state: str
    question: str
    started_at: _Time
    saved_at: _Time
    expires_at: _Time
    pending: list[_Pending]
    calls: list[_Object] = []
    messages: list[_Object] = []
    device: Annotated[str, Meta(description="The other computer of the owner that has it")] = ""


class _Runs(Struct):
    runs: list[_Run]


class _Taken(Struct):
    repeated: bool
    word: str
    by: str
    via: str
    time: _Time


class _ChatCompletion(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[_Object]
    usage: _Object = {}
    hearthnet: _Object = {}


class _Model(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    hearthnet: _Object = {}


class _Models(Struct):
    object: Literal["list"]
    data: list[_Model]


class _ErrorDetail(Struct):
    message: str
    type: str
    code: str
    param: str | None = None


class _OpenAIError(Struct):
    error: _ErrorDetail


class _Me(Struct):
    node: str
    community: str
    principal: str
    key: str
    scope: _Object = {}
    expires_at: _Time = 0


class _Health(Struct):
    ok: bool
    version: str


_REQUESTS: Final = (_Call, FollowUp, _Body, _Said, _Changed, ToolUse, OwnTool, ChatCompletionRequest)
_ANSWERS: Final = (_Capabilities, _Answer, _Waits, _Error, _Runs, _Taken, _Me, _Health)
_OPENAIS: Final = (_ChatCompletion, _Models, _OpenAIError)
_TOOL: Final = {"type": "string", "description": "A built-in tool, or a capability as it is"}


def schemas() -> dict[str, Any]:
    """Return all schemas by name, including those of the contracts of `callable_here`."""
    found = _components()
    found["Tool"] = {"anyOf": [_TOOL, ref("ToolUse"), ref("OwnTool")]}
    found["Call"]["properties"]["capability"]["examples"] = [one.id for one in callable_here()]
    for contract in callable_here():
        found[component(contract, "Request")] = _tidy(_request(contract))
        found[component(contract, "Response")] = _tidy(_response(contract))
    return found


def _components() -> dict[str, Any]:
    """Return the schemas that msgspec makes, by their names.

    Without titles, which would name types anew, and without defaults: some generators take none of an object.
    """
    kinds = (*_REQUESTS, *_ANSWERS, *_OPENAIS)
    _, made = msgspec.json.schema_components(kinds, ref_template=f"{_REF}{{name}}")
    text = re.sub(rb"\\n +", rb"\\n", msgspec.json.encode(made).replace(b"schemas/_", b"schemas/"))
    named = {name.lstrip("_"): schema for name, schema in msgspec.json.decode(text).items()}
    found: dict[str, Any] = _tidy(named, frozenset({"default", "title"}))
    return found


def callable_here() -> list[Contract]:
    """Return the contracts that a guest may call with one request.

    Capabilities that take input while they answer are left out.
    """
    return [
        one for one in contracts() if is_for_clients(one) and not (one.side_effects and one.stream_schema)
    ]


def component(contract: Contract, part: str) -> str:
    """Return the name of a schema of `contract`, such as `RagQueryV1Request`.

    `part` is `Request` or `Response`. The name has only letters and digits: generators differ in what they
    make of other characters.
    """
    words = [word.capitalize() for word in re.split(r"[._]", contract.name)]
    return f"{''.join(words)}V{contract.major}{part}"


def ref(schema: str) -> Schema:
    """Return a reference to one of `schemas`."""
    return {"$ref": f"{_REF}{schema}"}


def _request(contract: Contract) -> Schema:
    """Return the contract's request schema without members that the gateway adds.

    For a chat it has the tools as a run takes them.
    """
    schema = copy.deepcopy(contract.request_schema)
    given = schema["properties"]["input"]
    if contract.idempotent == "client_id" and "client_id" in given.get("required", ()):
        given["required"].remove("client_id")
    if contract.name == CHAT:
        given["properties"]["tools"] = {"type": "array", "items": ref("Tool")}
    return {**schema, "description": contract.summary}


def _response(contract: Contract) -> Schema:
    """Return the contract's response schema; collected frames if the capability only streams."""
    if contract.stream_schema is None or may_answer_whole(contract):
        return contract.response_schema
    frame = _closed(event={"type": "string"}, data={"type": "object"})
    output = _closed(frames={"type": "array", "items": frame}, final={"type": "object"})
    return _closed(output=output, meta={"type": "object"})


def _closed(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _tidy(schema: Any, without: frozenset[str] = frozenset()) -> Any:
    """Return `schema` with `items` in each array: generators drop a schema without it."""
    if isinstance(schema, list):
        return [_tidy(one, without) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _tidy(value, without) for name, value in schema.items() if name not in without}
    return {"items": {}, **inner} if schema.get("type") == "array" else inner
