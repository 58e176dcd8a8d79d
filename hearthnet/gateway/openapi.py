"""The gateway's description for programs: OpenAPI 3.1, whose schemas are JSON Schema 2020-12.

Made from the contracts, so that it says what they say. A capability is not a path of its own: it is what
`POST /v1/call` names, and each has its schemas under `components`.
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any, Final

from hearthnet import __version__
from hearthnet.contracts import Contract, contracts
from hearthnet.errors import CODES
from hearthnet.gateway.errors import STATUS
from hearthnet.trust.authority import SELF, UNDELEGABLE

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string"}
_OBJECT: Final[Schema] = {"type": "object"}
_FLAG: Final[Schema] = {"type": "boolean"}
_TIME: Final[Schema] = {"type": "integer", "minimum": 0, "description": "Milliseconds since the epoch"}


@cache
def description() -> dict[str, Any]:
    """The whole document. It names no node and no client."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "HearthNet gateway",
            "version": __version__,
            "summary": "The capabilities of a mesh over HTTP",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"cookie": []}],
        "tags": [{"name": name} for name in ("calls", "runs", "openai", "door")],
        "paths": _paths(),
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key hnk_... of `hearthnet clients add`, or a session token hntoken://...",
                },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "hearthnet_client",
                    "description": "The page's own; its name ends with a part of the node's id",
                },
            },
            "schemas": _schemas(),
            "responses": {
                "Error": _json("What is wrong, and what to do", {"$ref": "#/components/schemas/Error"})
            },
        },
    }


def _paths() -> dict[str, Any]:
    named = {"in": "query", "name": "name", "schema": _TEXT, "description": "Only this capability"}
    model = {"in": "path", "name": "model", "required": True, "schema": _TEXT}
    return {
        "/v1/capabilities": {"get": _get("calls", "What this client may call", "Capabilities", [named])},
        "/v1/call": {"post": _call()},
        "/v1/models": {"get": _get("openai", "The models of the mesh", "Models")},
        "/v1/models/{model}": {"get": _get("openai", "One model", "Model", [model])},
        "/v1/chat/completions": {"post": _completion()},
        "/v1/me": {"get": _get("door", "Who this client is, and what it may do", "Me")},
        "/health": {"get": {**_get("door", "Whether the gateway is well", "Health"), "security": []}},
    }


def _get(tag: str, summary: str, schema: str, parameters: list[Schema] | None = None) -> dict[str, Any]:
    found = _json(summary, {"$ref": f"#/components/schemas/{schema}"})
    operation = {
        "tags": [tag],
        "summary": summary,
        "operationId": f"get{schema}",
        "responses": {"200": found, **_errors()},
    }
    return operation | ({"parameters": parameters} if parameters else {})


def _call() -> dict[str, Any]:
    body = {"oneOf": [{"$ref": "#/components/schemas/Call"}, {"$ref": "#/components/schemas/FollowUp"}]}
    answer = {"oneOf": [{"$ref": "#/components/schemas/Answer"}, {"$ref": "#/components/schemas/Waits"}]}
    return {
        "tags": ["calls"],
        "summary": "Call a capability, or go on with a run",
        "description": "With `Accept: text/event-stream` the answer is events: `id` is the number of a frame,"
        " `event` its name, `data` its JSON. The last one is `done`, `suspended` or `error`.",
        "operationId": "call",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": _answers(answer), **_errors()},
    }


def _completion() -> dict[str, Any]:
    body = {"$ref": "#/components/schemas/ChatCompletionRequest"}
    return {
        "tags": ["openai"],
        "summary": "A chat completion in OpenAI's form",
        "operationId": "createChatCompletion",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": _answers({"$ref": "#/components/schemas/ChatCompletion"}),
            "default": _json("The error in OpenAI's form", {"$ref": "#/components/schemas/OpenAIError"}),
        },
    }


def _answers(schema: Schema) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}, "text/event-stream": {"schema": _TEXT}}
    return {"description": "The answer", "content": content}


def _json(text: str, schema: Schema) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _errors() -> dict[str, Any]:
    """Each status that there is an error for, with its codes."""
    codes: dict[int, list[str]] = {}
    for code, status in STATUS.items():
        codes.setdefault(status, []).append(code)
    return {
        str(status): {
            "description": f"{HTTPStatus(status).phrase}: {', '.join(sorted(names))}",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        for status, names in sorted(codes.items())
    }


def _closed(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


def _list_of(schema: str) -> Schema:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{schema}"}}


def _schemas() -> dict[str, Any]:
    callable_here = [one for one in contracts() if _for_guests(one)]
    found: dict[str, Any] = {}
    for contract in callable_here:
        name = contract.id.replace("@", "-")
        found[f"{name}.request"] = {**contract.request_schema, "description": contract.summary}
        found[f"{name}.response"] = contract.response_schema
    return {**_calls([one.id for one in callable_here]), **_runs(), **_openai(), **_door(), **found}


def _for_guests(contract: Contract) -> bool:
    return contract.trust_required != SELF and contract.name not in UNDELEGABLE


def _calls(names: list[str]) -> dict[str, Schema]:
    offer = _closed(
        ("node", "instance", "params"),
        node=_TEXT,
        instance=_TEXT,
        service=_TEXT,
        params=_OBJECT,
        max_concurrent={"type": "integer"},
        in_flight={"type": "integer"},
        expires_at=_TIME,
    )
    capability = _closed(
        ("capability", "name", "version", "summary", "side_effects", "streams", "request_schema", "offers"),
        capability=_TEXT,
        name=_TEXT,
        version=_TEXT,
        summary=_TEXT,
        side_effects=_FLAG,
        idempotent=_TEXT,
        trust_required=_TEXT,
        streams=_FLAG,
        timeout_seconds={"type": "number"},
        request_schema=_OBJECT,
        response_schema=_OBJECT,
        stream_schema={"type": ["object", "null"]},
        offers=_list_of("Offer"),
    )
    body = {"type": "object", "required": ["params", "input"], "description": "As its request schema says"}
    call = _closed(
        ("capability", "body"),
        capability={"type": "string", "examples": names, "description": "name or name@major.minor"},
        version={"type": "string", "description": "major.minor; the newest where it is left out"},
        body=body,
        timeout_ms={"type": "integer", "minimum": 1, "maximum": 600_000},
        request_id={"type": "string", "description": "A ULID; the same one again has no second effect"},
        approval={"type": "object", "description": "What was handed out to be signed, with its signature"},
        community=_TEXT,
        timestamp=_TEXT,
        signature=_TEXT,
        token=_TEXT,
        **{"from": _TEXT},
    )
    answer = _closed(("output", "meta"), output={}, meta=_OBJECT, provider=_TEXT, run=_TEXT)
    answer["properties"]["requires_follow_up"] = {"const": False}
    error = _closed(
        ("error", "message"),
        error={"enum": sorted(CODES)},
        message=_TEXT,
        details=_OBJECT,
        retry_after_ms={"type": "integer", "minimum": 0},
        alt_capabilities={"type": "array", "items": _TEXT},
    )
    return {
        "Offer": offer,
        "Capability": capability,
        "Capabilities": _closed(("capabilities",), capabilities=_list_of("Capability")),
        "Call": call,
        "Answer": answer,
        "Error": error,
    }


def _runs() -> dict[str, Schema]:
    decision = _closed(
        ("decision",),
        decision={"enum": ["approve", "deny", "edit"]},
        shown={"type": "string", "description": "The arguments_digest of what was seen"},
        arguments=_OBJECT,
        reason=_TEXT,
        approval=_OBJECT,
    )
    follow_up = _closed(
        ("run",),
        run=_TEXT,
        decisions={"type": "object", "additionalProperties": decision},
        answers={
            "type": "object",
            "additionalProperties": _closed(("content",), content={}, is_error=_FLAG),
        },
    )
    follow_up["additionalProperties"] = False
    waits = _closed(
        ("requires_follow_up", "run", "pending", "wanted"),
        requires_follow_up={"const": True},
        run=_TEXT,
        output=_OBJECT,
        pending=_list_of("Pending"),
        wanted=_list_of("Wanted"),
    )
    pending = _closed(
        ("tool_call_id", "name", "capability", "arguments", "body", "arguments_digest", "expires_at"),
        tool_call_id=_TEXT,
        name=_TEXT,
        capability=_TEXT,
        arguments=_OBJECT,
        body=_OBJECT,
        arguments_digest=_TEXT,
        expires_at=_TIME,
        problem=_TEXT,
        untrusted=_FLAG,
        approval={"type": ["object", "null"], "description": "To be signed, where the client has a key"},
    )
    wanted = _closed(
        ("run", "tool_call_id", "name", "arguments", "expires_at"),
        run=_TEXT,
        tool_call_id=_TEXT,
        name=_TEXT,
        arguments=_OBJECT,
        expires_at=_TIME,
    )
    return {"FollowUp": follow_up, "Waits": waits, "Pending": pending, "Wanted": wanted}


def _openai() -> dict[str, Schema]:
    message = {"type": "object", "required": ["role"], "properties": {"role": _TEXT}}
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
            run=_TEXT,
            events=_FLAG,
        ),
    )
    completion = _closed(
        ("id", "object", "created", "model", "choices"),
        id=_TEXT,
        object={"const": "chat.completion"},
        created={"type": "integer"},
        model=_TEXT,
        choices={"type": "array", "items": _OBJECT},
        usage=_OBJECT,
        hearthnet=_OBJECT,
    )
    model = _closed(
        ("id", "object", "created", "owned_by"),
        id=_TEXT,
        object={"const": "model"},
        created={"type": "integer"},
        owned_by=_TEXT,
        hearthnet=_OBJECT,
    )
    told = _closed(
        ("message", "type", "code"), message=_TEXT, type=_TEXT, param={"type": ["string", "null"]}, code=_TEXT
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
        "Me": _closed(who, **dict.fromkeys(who, _TEXT), scope=_OBJECT, expires_at=_TIME),
        "Health": _OBJECT,
    }
