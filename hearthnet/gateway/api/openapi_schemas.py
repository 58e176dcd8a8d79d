"""The schemas of the gateway's API description, besides those of the contracts."""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from hearthnet.contracts import Contract, contracts
from hearthnet.core.errors import CODES
from hearthnet.trust.authorization.authority import SELF, UNDELEGABLE

Schema = dict[str, Any]
CHAT: Final = "llm.chat"
TEXT: Final[Schema] = {"type": "string"}
_OBJECT: Final[Schema] = {"type": "object"}
_FLAG: Final[Schema] = {"type": "boolean"}
_TIME: Final[Schema] = {"type": "integer", "minimum": 0, "description": "Milliseconds since the epoch"}


def _closed(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


def _list_of(schema: str) -> Schema:
    return {"type": "array", "items": ref(schema)}


def schemas() -> dict[str, Any]:
    """Return all schemas by name, including those of the contracts of `callable_here`."""
    found: dict[str, Any] = {}
    for contract in callable_here():
        found[component(contract, "Request")] = _with_items(_request(contract))
        found[component(contract, "Response")] = _with_items(_response(contract))
    calls = _calls([one.id for one in callable_here()])
    return {**_offered(), **calls, **_tools(), **_turns(), **_runs(), **_openai(), **_door(), **found}


def callable_here() -> list[Contract]:
    """Return the contracts that a guest may call with one request.

    Capabilities that take input while they answer are left out.
    """
    return [one for one in contracts() if _for_guests(one) and not (one.side_effects and one.stream_schema)]


def component(contract: Contract, part: str) -> str:
    """Return the name of a schema of `contract`, such as `RagQueryV1Request`.

    `part` is `Request` or `Response`. The name has only letters and digits: generators differ in what they
    make of other characters.
    """
    words = [word.capitalize() for word in re.split(r"[._]", contract.name)]
    return f"{''.join(words)}V{contract.major}{part}"


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
    if (
        contract.stream_schema is None
        or "stream" in contract.request_schema["properties"]["input"]["properties"]
    ):
        return contract.response_schema
    frame = _closed(("event", "data"), event=TEXT, data=_OBJECT)
    output = _closed(("frames", "final"), frames={"type": "array", "items": frame}, final=_OBJECT)
    return _closed(("output", "meta"), output=output, meta=_OBJECT)


def _with_items(schema: Any) -> Any:
    """Return `schema` with `items` in each array; generators drop a schema without it."""
    if isinstance(schema, list):
        return [_with_items(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _with_items(value) for name, value in schema.items()}
    return {"items": {}, **inner} if schema.get("type") == "array" else inner


def ref(schema: str) -> Schema:
    """Return a reference to one of `schemas`."""
    return {"$ref": f"#/components/schemas/{schema}"}


def _for_guests(contract: Contract) -> bool:
    return contract.trust_required != SELF and contract.name not in UNDELEGABLE


def _offered() -> dict[str, Schema]:
    """Return the capabilities that a client may call."""
    offer = _closed(
        ("node", "instance", "params"),
        node=TEXT,
        instance=TEXT,
        service=TEXT,
        params=_OBJECT,
        max_concurrent={"type": "integer"},
        in_flight={"type": "integer"},
        expires_at=_TIME,
    )
    capability = _closed(
        ("capability", "name", "version", "summary", "side_effects", "streams", "request_schema", "offers"),
        capability=TEXT,
        name=TEXT,
        version=TEXT,
        summary=TEXT,
        side_effects=_FLAG,
        idempotent=TEXT,
        trust_required=TEXT,
        streams=_FLAG,
        timeout_seconds={"type": "number"},
        request_schema=_OBJECT,
        response_schema=_OBJECT,
        stream_schema={"type": ["object", "null"]},
        offers=_list_of("Offer"),
    )
    listed = _closed(("capabilities",), capabilities=_list_of("Capability"))
    return {"Offer": offer, "Capability": capability, "Capabilities": listed}


def _calls(names: list[str]) -> dict[str, Schema]:
    """One call, its answer, and the error object."""
    body = _closed(("params", "input"), params=_OBJECT, input=_OBJECT) | {
        "description": "As its request schema says"
    }
    call = _closed(
        ("capability", "body"),
        capability={"type": "string", "examples": names, "description": "name or name@major.minor"},
        version={"type": "string", "description": "major.minor; the newest where it is left out"},
        body=ref("Body"),
        timeout_ms={"type": "integer", "minimum": 1, "maximum": 600_000},
        request_id={"type": "string", "description": "A ULID; the same one again has no second effect"},
        approval={"type": "object", "description": "What was handed out to be signed, with its signature"},
        community=TEXT,
        timestamp=TEXT,
        signature=TEXT,
        token=TEXT,
        **{"from": TEXT},
    )
    answer = _closed(("output", "meta"), output={}, meta=_OBJECT, provider=TEXT, run=TEXT)
    answer["properties"]["requires_follow_up"] = _FLAG
    error = _closed(
        ("error", "message"),
        error={"enum": sorted(CODES)},
        message=TEXT,
        details=_OBJECT,
        retry_after_ms={"type": "integer", "minimum": 0},
        alt_capabilities={"type": "array", "items": TEXT},
    )
    return {"Body": body, "Call": call, "Answer": answer, "Error": error}


def _tools() -> dict[str, Schema]:
    """The tools that a question names."""
    named = {"type": "string", "description": "A built-in tool, or a capability as it is"}
    return {
        "Tool": {"anyOf": [named, ref("ToolUse"), ref("OwnTool")]},
        "ToolUse": _closed(("use",), use=TEXT, params=_OBJECT),
        "OwnTool": _closed(
            ("name",), name=TEXT, description=TEXT, parameters_schema=_OBJECT, side_effects=_FLAG
        ),
    }


def _decision() -> Schema:
    return _closed(
        ("decision",),
        decision={"enum": ["approve", "deny", "edit"]},
        shown={"type": "string", "description": "The arguments_digest of what was seen; not needed to deny"},
        arguments=_OBJECT,
        reason=TEXT,
        approval=_OBJECT,
    )


def _turns() -> dict[str, Schema]:
    """Return the schemas of follow-ups of a run over HTTP, and of the decisions that it waits for."""
    follow_up = _closed(
        ("run",),
        run=TEXT,
        decisions={"type": "object", "additionalProperties": _decision()},
        answers={
            "type": "object",
            "additionalProperties": _closed(("content",), content={}, is_error=_FLAG),
        },
    )
    follow_up["additionalProperties"] = False
    waits = _closed(
        ("requires_follow_up", "run", "pending", "wanted"),
        requires_follow_up={"const": True},
        run=TEXT,
        output=_OBJECT,
        pending=_list_of("Pending"),
        wanted=_list_of("Wanted"),
    )
    pending = _closed(
        ("tool_call_id", "name", "capability", "arguments", "body", "arguments_digest", "expires_at"),
        tool_call_id=TEXT,
        name=TEXT,
        capability=TEXT,
        arguments=_OBJECT,
        body=_OBJECT,
        arguments_digest=TEXT,
        expires_at=_TIME,
        problem=TEXT,
        untrusted=_FLAG,
        provider={"type": "string", "description": "The node that an effect on a single home is for"},
        home={"type": "string", "description": "The name of that home"},
        approval={"type": ["object", "null"], "description": "To be signed, where the client has a key"},
    )
    wanted = _closed(
        ("run", "tool_call_id", "name", "arguments", "expires_at"),
        run=TEXT,
        tool_call_id=TEXT,
        name=TEXT,
        arguments=_OBJECT,
        expires_at=_TIME,
    )
    return {"FollowUp": follow_up, "Waits": waits, "Pending": pending, "Wanted": wanted}


def _runs() -> dict[str, Schema]:
    """Runs as they are listed, and decisions about their calls."""
    said = _closed(("call", "decision"), call=TEXT, **_decision()["properties"])
    changed = _closed(("call", "arguments"), call=TEXT, arguments=_OBJECT)
    taken = _closed(
        ("repeated", "word", "by", "via", "time"), repeated=_FLAG, word=TEXT, by=TEXT, via=TEXT, time=_TIME
    )
    run = _closed(
        ("run", "principal", "state", "question", "started_at", "saved_at", "expires_at", "pending"),
        run=TEXT,
        principal=TEXT,
        state=TEXT,
        question=TEXT,
        started_at=_TIME,
        saved_at=_TIME,
        expires_at=_TIME,
        pending=_list_of("Pending"),
        calls={"type": "array", "items": _OBJECT},
        messages={"type": "array", "items": _OBJECT},
    )
    said["additionalProperties"] = changed["additionalProperties"] = False
    kept = {"Run": run, "Runs": _closed(("runs",), runs=_list_of("Run"))}
    return {**kept, "Said": said, "Changed": changed, "Taken": taken}


def _openai() -> dict[str, Schema]:
    role = {"enum": ["system", "developer", "user", "assistant", "tool"]}
    message = {"type": "object", "required": ["role"], "properties": {"role": role}}
    request = _closed(
        ("model", "messages"),
        model={
            "type": "string",
            "description": "As /v1/models lists it; +tools: with the tools of the mesh",
        },
        messages={"type": "array", "minItems": 1, "items": message},
        stream=_FLAG,
        tools={"type": "array", "items": _OBJECT},
        hearthnet=_closed(
            (),
            tools={"type": "array", "items": {"type": ["string", "object"]}},
            run=TEXT,
            events=_FLAG,
        ),
    )
    completion = _closed(
        ("id", "object", "created", "model", "choices"),
        id=TEXT,
        object={"const": "chat.completion"},
        created={"type": "integer"},
        model=TEXT,
        choices={"type": "array", "items": _OBJECT},
        usage=_OBJECT,
        hearthnet=_OBJECT,
    )
    model = _closed(
        ("id", "object", "created", "owned_by"),
        id=TEXT,
        object={"const": "model"},
        created={"type": "integer"},
        owned_by=TEXT,
        hearthnet=_OBJECT,
    )
    told = _closed(
        ("message", "type", "code"), message=TEXT, type=TEXT, param={"type": ["string", "null"]}, code=TEXT
    )
    return {
        "ChatCompletionRequest": request,
        "ChatCompletion": completion,
        "Model": model,
        "Models": _closed(("object", "data"), object={"const": "list"}, data=_list_of("Model")),
        "OpenAIError": _closed(("error",), error=told),
    }


def _door() -> dict[str, Schema]:
    who = ("node", "community", "principal", "key")
    return {
        "Me": _closed(who, **dict.fromkeys(who, TEXT), scope=_OBJECT, expires_at=_TIME),
        "Health": _OBJECT,
    }
