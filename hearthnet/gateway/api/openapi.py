"""The gateway's description for programs: OpenAPI 3.1 with JSON Schema 2020-12.

It is made from the contracts, so that both agree. Each capability that one request can carry is a path of
its own, from which generators make a typed function (docs/decisions/0141).
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any, Final

from hearthnet import __version__
from hearthnet.contracts import Contract
from hearthnet.gateway.api.openapi_schemas import CHAT, TEXT, Schema, callable_here, component, ref, schemas
from hearthnet.gateway.http.errors import STATUS

_RUN: Final[Schema] = {"in": "path", "name": "run", "required": True, "schema": TEXT}
_OPENAI_ERROR: Final[Schema] = ref("OpenAIError")
_ANY_ANSWER: Final[Schema] = {"oneOf": [ref("Answer"), ref("Waits")]}
_DEFAULT: Final[Schema] = {"default": {"$ref": "#/components/responses/Error"}}


@cache
def description() -> dict[str, Any]:
    """Return the whole document. It names no node and no client."""
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
            "schemas": schemas(),
            "responses": {"Error": _json("What is wrong, and what to do", ref("Error"))},
        },
    }


def _paths() -> dict[str, Any]:
    named = {"in": "query", "name": "name", "schema": TEXT, "description": "Only this capability"}
    model = {"in": "path", "name": "model", "required": True, "schema": TEXT}
    return {
        "/v1/capabilities": {"get": _get("calls", "What this client may call", "Capabilities", [named])},
        "/v1/call": {"post": _call()},
        "/v1/call/{capability}": {"post": _call_of_any()},
        **{f"/v1/call/{contract.id}": {"post": _call_of(contract)} for contract in callable_here()},
        "/v1/runs": {"get": _get("runs", "This client's runs of the last day", "Runs")},
        "/v1/runs/{run}": {"get": _get("runs", "One run with its conversation", "Run", [_RUN])},
        "/v1/runs/{run}/decisions": {"post": _of_run("Decide about a call", "decide", "Said", "Taken")},
        "/v1/runs/{run}/preview": {"post": _of_run("A call after an edit", "preview", "Changed", "Pending")},
        "/v1/runs/{run}/cancel": {"post": _of_run("End a run", "cancel", "", "Run")},
        "/v1/models": {"get": _in_openais_form(_get("openai", "The models of the mesh", "Models"))},
        "/v1/models/{model}": {"get": _in_openais_form(_get("openai", "One model", "Model", [model]))},
        "/v1/chat/completions": {"post": _completion()},
        "/v1/me": {"get": _get("door", "Who this client is, and what it may do", "Me")},
        "/health": {"get": _health()},
    }


def _get(tag: str, summary: str, schema: str, parameters: list[Schema] | None = None) -> dict[str, Any]:
    found = _json(summary, ref(schema))
    operation = {
        "tags": [tag],
        "summary": summary,
        "operationId": f"get{schema}",
        "responses": {"200": found, **_errors()},
    }
    return operation | ({"parameters": parameters} if parameters else {})


def _in_openais_form(operation: dict[str, Any]) -> dict[str, Any]:
    """Return `operation` with errors in OpenAI's form."""
    told = {
        "200": operation["responses"]["200"],
        "default": _json("The error in OpenAI's form", _OPENAI_ERROR),
    }
    return {**operation, "responses": told}


def _health() -> dict[str, Any]:
    """Return the operation of `/health`, whose body is the same in both states."""
    operation = _get("door", "Whether the gateway is well", "Health")
    ill = {**operation["responses"]["200"], "description": "The bus is out of reach"}
    return {**operation, "security": [], "responses": {**operation["responses"], "503": ill}}


def _of_run(summary: str, name: str, takes: str, gives: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": ["runs"],
        "summary": summary,
        "operationId": f"{name}Run",
        "parameters": [_RUN],
        "responses": {"200": _json(summary, ref(gives)), **_errors()},
    }
    if takes:
        body = {"schema": ref(takes)}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    return operation


def _call() -> dict[str, Any]:
    body = {"oneOf": [ref("Call"), ref("FollowUp")]}
    operation = _posted("calls", "Call a capability, or go on with a run", "call", body, _ANY_ANSWER)
    operation["description"] = (
        "With `Accept: text/event-stream` the answer is events: `id` is the number of a frame, `event` its"
        " name, `data` its JSON. The last one is `done`, `suspended` or `error`."
    )
    operation["responses"] |= _errors()
    return operation


def _call_of_any() -> dict[str, Any]:
    """Return the operation for any capability, including foreign ones."""
    summary = "Call a capability that is listed in /v1/capabilities"
    operation = _posted("calls", summary, "callAny", ref("Body"), _ANY_ANSWER)
    operation["parameters"] = [{"in": "path", "name": "capability", "required": True, "schema": TEXT}]
    return operation | {"responses": operation["responses"] | _DEFAULT}


def _call_of(contract: Contract) -> dict[str, Any]:
    """Return the operation for `contract`; a chat with tools is a run, which may have to wait."""
    answer = ref(component(contract, "Response"))
    if contract.name == CHAT:
        answer = {"anyOf": [answer, *_ANY_ANSWER["oneOf"]]}
    name, body = f"call{component(contract, '')}", ref(component(contract, "Request"))
    operation = _posted("calls", contract.summary, name, body, answer)
    return operation | {"responses": operation["responses"] | _DEFAULT}


def _completion() -> dict[str, Any]:
    operation = _posted(
        "openai",
        "A chat completion in OpenAI's form",
        "createChatCompletion",
        ref("ChatCompletionRequest"),
        ref("ChatCompletion"),
    )
    operation["responses"]["default"] = _json("The error in OpenAI's form", _OPENAI_ERROR)
    return operation


def _posted(tag: str, summary: str, name: str, body: Schema, answer: Schema) -> dict[str, Any]:
    """Return the operation of a POST of `body` that is answered with `answer`, or with events."""
    return {
        "tags": [tag],
        "summary": summary,
        "operationId": name,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": _answers(answer)},
    }


def _answers(schema: Schema) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}, "text/event-stream": {"schema": TEXT}}
    return {"description": "The answer", "content": content}


def _json(text: str, schema: Schema) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _errors() -> dict[str, Any]:
    """Return a response for each status of an error, with its codes."""
    codes: dict[int, list[str]] = {}
    for code, status in STATUS.items():
        codes.setdefault(status, []).append(code)
    return {
        str(status): {
            "description": f"{HTTPStatus(status).phrase}: {', '.join(sorted(names))}",
            "content": {"application/json": {"schema": ref("Error")}},
        }
        for status, names in sorted(codes.items())
    }
