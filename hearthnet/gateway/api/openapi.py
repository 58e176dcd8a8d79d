"""The gateway's description for programs: OpenAPI 3.1 with JSON Schema 2020-12.

It is made from the contracts, so that both agree. Each capability that one request can carry is a path of
its own, from which generators make a typed function (docs/decisions/0141).
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any, Final

from hearthnet import __version__
from hearthnet.contracts.contract import Contract
from hearthnet.gateway.api.schemas import CHAT, Schema, callable_here, component, ref, schemas
from hearthnet.gateway.http.errors import STATUS

_TEXT: Final[Schema] = {"type": "string"}
_WAITING: Final[Schema] = {"oneOf": [ref("Answer"), ref("Waits")]}
_ANY_ERROR: Final = {"default": {"$ref": "#/components/responses/Error"}}
_OPENAIS: Final = {
    "default": {
        "description": "The error in OpenAI's form",
        "content": {"application/json": {"schema": ref("OpenAIError")}},
    }
}
_EVENTS: Final = (
    "With `Accept: text/event-stream` the answer is events: `id` is the number of a frame, `event` its"
    " name, `data` its JSON. The last one is `done`, `suspended` or `error`."
)
_BEARER: Final = "A key hnk_... of `hearthnet clients add`, or a session token hntoken://..."
_COOKIE: Final = "The page's own; its name ends with a part of the node's id"


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
        "tags": [{"name": name} for name in ("calls", "runs", "openai", "session")],
        "paths": _paths(),
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": _BEARER},
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "hearthnet_client",
                    "description": _COOKIE,
                },
            },
            "schemas": schemas(),
            "responses": {"Error": _json("What is wrong, and what to do", ref("Error"))},
        },
    }


def _paths() -> dict[str, Any]:
    named = {"in": "query", "name": "name", "schema": _TEXT, "description": "Only this capability"}
    capability, run, model = map(_in_path, ("capability", "run", "model"))
    said, changed = {"takes": ref("Said")}, {"takes": ref("Changed")}
    any_call = {"takes": ref("Body"), "errors": _ANY_ERROR, "events": True}
    completion = {"takes": ref("ChatCompletionRequest"), "errors": _OPENAIS, "events": True}
    answer, in_form = ref("ChatCompletion"), "A chat completion in OpenAI's form"
    ill = {**_errors(), "503": _json("The bus is out of reach", ref("Health"))}
    what, any_summary = "What this client may call", "Call a capability that is listed in /v1/capabilities"
    return {
        "/v1/capabilities": _get("calls", what, "Capabilities", named),
        "/v1/call": _call(),
        "/v1/call/{capability}": _post("calls", any_summary, "callAny", _WAITING, capability, **any_call),
        **{f"/v1/call/{contract.id}": _call_of(contract) for contract in callable_here()},
        "/v1/runs": _get("runs", "This client's runs of the last day", "Runs"),
        "/v1/runs/{run}": _get("runs", "One run with its conversation", "Run", run),
        "/v1/runs/{run}/decisions": _post("runs", "Decide a call", "decideRun", ref("Taken"), run, **said),
        "/v1/runs/{run}/preview": _post("runs", "Show an edit", "previewRun", ref("Pending"), run, **changed),
        "/v1/runs/{run}/cancel": _post("runs", "End a run", "cancelRun", ref("Run"), run),
        "/v1/runs/{run}/take": _post("runs", "Take over from another computer", "takeRun", ref("Run"), run),
        "/v1/models": _get("openai", "The models of the mesh", "Models", errors=_OPENAIS),
        "/v1/models/{model}": _get("openai", "One model", "Model", model, errors=_OPENAIS),
        "/v1/chat/completions": _post("openai", in_form, "createChatCompletion", answer, **completion),
        "/v1/me": _get("session", "Who this client is, and what it may do", "Me"),
        "/health": _get("session", "Whether the gateway is well", "Health", errors=ill, security=[]),
    }


def _call() -> dict[str, Any]:
    takes = {"oneOf": [ref("Call"), ref("FollowUp")]}
    summary = "Call a capability, or go on with a run"
    return _post("calls", summary, "call", _WAITING, takes=takes, events=True, description=_EVENTS)


def _call_of(contract: Contract) -> dict[str, Any]:
    """Return the operation for `contract`; a chat with tools is a run, which may have to wait."""
    gives, takes = ref(component(contract, "Response")), ref(component(contract, "Request"))
    if contract.name == CHAT:
        gives = {"anyOf": [gives, *_WAITING["oneOf"]]}
    name = f"call{component(contract, '')}"
    return _post("calls", contract.summary, name, gives, takes=takes, errors=_ANY_ERROR, events=True)


def _get(tag: str, summary: str, schema: str, *parameters: Schema, **more: Any) -> dict[str, Any]:
    return {"get": _operation(tag, summary, f"get{schema}", ref(schema), *parameters, **more)}


def _post(tag: str, summary: str, name: str, gives: Schema, *given: Schema, **more: Any) -> dict[str, Any]:
    return {"post": _operation(tag, summary, name, gives, *given, **more)}


def _operation(
    tag: str,
    summary: str,
    name: str,
    gives: Schema,
    *parameters: Schema,
    takes: Schema | None = None,
    errors: dict[str, Any] | None = None,
    events: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Return an operation that is answered with `gives`, and with `events` with events as well."""
    answer = _json(summary, gives)
    if events:
        answer["content"]["text/event-stream"] = {"schema": _TEXT}
    operation = {"tags": [tag], "summary": summary, "operationId": name, **more}
    if parameters:
        operation["parameters"] = list(parameters)
    if takes is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": takes}}}
    return {**operation, "responses": {"200": answer, **(errors or _errors())}}


def _in_path(name: str) -> Schema:
    return {"in": "path", "name": name, "required": True, "schema": _TEXT}


def _json(text: str, schema: Schema) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _errors() -> dict[str, Any]:
    """Return a response for each status of an error, with its codes."""
    codes: dict[int, list[str]] = {}
    for code, status in STATUS.items():
        codes.setdefault(status, []).append(code)
    return {
        str(status): _json(f"{HTTPStatus(status).phrase}: {', '.join(sorted(names))}", ref("Error"))
        for status, names in sorted(codes.items())
    }
