"""The gateway's description for programs: OpenAPI 3.1, whose schemas are JSON Schema 2020-12.

Made from the contracts, so that it says what they say. A capability is not a path of its own: it is what
`POST /v1/call` names, and each has its schemas under `components`.
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any, Final

from hearthnet import __version__
from hearthnet.gateway.errors import STATUS
from hearthnet.gateway.openapi_schemas import TEXT, Schema, schemas

_RUN: Final[Schema] = {"in": "path", "name": "run", "required": True, "schema": TEXT}
_OPENAI_ERROR: Final[Schema] = {
    "anyOf": [{"$ref": "#/components/schemas/OpenAIError"}, {"$ref": "#/components/schemas/Error"}]
}


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
            "schemas": schemas(),
            "responses": {
                "Error": _json("What is wrong, and what to do", {"$ref": "#/components/schemas/Error"})
            },
        },
    }


def _paths() -> dict[str, Any]:
    named = {"in": "query", "name": "name", "schema": TEXT, "description": "Only this capability"}
    model = {"in": "path", "name": "model", "required": True, "schema": TEXT}
    return {
        "/v1/capabilities": {"get": _get("calls", "What this client may call", "Capabilities", [named])},
        "/v1/call": {"post": _call()},
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
    found = _json(summary, {"$ref": f"#/components/schemas/{schema}"})
    operation = {
        "tags": [tag],
        "summary": summary,
        "operationId": f"get{schema}",
        "responses": {"200": found, **_errors()},
    }
    return operation | ({"parameters": parameters} if parameters else {})


def _in_openais_form(operation: dict[str, Any]) -> dict[str, Any]:
    """`operation` with the errors that OpenAI's clients know."""
    told = {
        "200": operation["responses"]["200"],
        "default": _json("The error in OpenAI's form", _OPENAI_ERROR),
    }
    return {**operation, "responses": told}


def _health() -> dict[str, Any]:
    """The same body, well or not."""
    operation = _get("door", "Whether the gateway is well", "Health")
    ill = {**operation["responses"]["200"], "description": "The bus is out of reach"}
    return {**operation, "security": [], "responses": {**operation["responses"], "503": ill}}


def _of_run(summary: str, name: str, takes: str, gives: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": ["runs"],
        "summary": summary,
        "operationId": f"{name}Run",
        "parameters": [_RUN],
        "responses": {"200": _json(summary, {"$ref": f"#/components/schemas/{gives}"}), **_errors()},
    }
    if takes:
        body = {"schema": {"$ref": f"#/components/schemas/{takes}"}}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    return operation


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
            "default": _json("The error in OpenAI's form", _OPENAI_ERROR),
        },
    }


def _answers(schema: Schema) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}, "text/event-stream": {"schema": TEXT}}
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
