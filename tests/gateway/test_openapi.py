"""The description for programs is valid OpenAPI 3.1, and says what there is."""

from __future__ import annotations

from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from hearthnet.contracts import compile_schema, contracts
from hearthnet.gateway import openapi
from hearthnet.gateway.errors import STATUS
from tests.helpers.gateway import House
from tests.helpers.scripted_model import Say

POST = {"category": "offer", "title": "Jam", "body": "Plum."}
QUERY = {"capability": "rag.query", "body": {"params": {"corpus": "probe"}, "input": {"query": "water"}}}
_ELSEWHERE = ("/v1/socket", "/mcp", "/page", "/openapi.json", "/v1/session")
"""Described in words: other protocols, and the page's own door."""


@pytest.mark.req("HTTP-9")
def test_a_validator_of_others_finds_nothing_wrong_with_it() -> None:
    assert list(OpenAPIV31SpecValidator(openapi.description()).iter_errors()) == []


@pytest.mark.req("HTTP-9")
def test_every_schema_is_one_and_every_error_has_its_status() -> None:
    description = openapi.description()
    schemas: dict[str, Any] = description["components"]["schemas"]
    assert (
        schemas["rag.query-1.0.request"]["properties"]
        == contracts().get("rag.query@1.0").request_schema["properties"]
    )
    assert "auth.token.issue-1.0.request" not in schemas
    for name, schema in schemas.items():
        if "$ref" not in str(schema):
            compile_schema(schema)
            assert name
    told = set(description["paths"]["/v1/call"]["post"]["responses"])
    assert told == {"200", *map(str, STATUS.values())}
    assert set(schemas["Error"]["properties"]["error"]["enum"]) == set(STATUS)


@pytest.mark.req("HTTP-9")
@pytest.mark.asyncio
async def test_every_route_is_in_it(house: House) -> None:
    from hearthnet.gateway.app import parts

    described = set(openapi.description()["paths"])
    routes = [route for part in parts() for route in part.routes(house.gateway) if isinstance(route, Route)]
    paths = {route.path.replace(":path}", "}") for route in routes}
    own = {path for path in paths if not path.startswith(_ELSEWHERE) and path != "/"}
    assert own == described


def check(name: str, value: Any) -> None:
    """`value` is what the description says of the schema `name`."""
    schema = {**openapi.description(), "$ref": f"#/components/schemas/{name}"}
    assert compile_schema(schema).errors(value) == []


@pytest.mark.req("HTTP-9")
@pytest.mark.asyncio
async def test_what_is_answered_is_what_it_says(house: House) -> None:
    guest = house.guest()
    house.model.turns["post"] = [Say(calls=(("market_post", POST),)), Say("Posted.")]
    chat = {"messages": [{"role": "user", "content": "post"}], "tools": ["market.post"]}
    async with house.http(guest) as http:
        for path, name in (
            ("/v1/capabilities", "Capabilities"),
            ("/v1/models", "Models"),
            ("/v1/models/mesh", "Model"),
            ("/v1/me", "Me"),
            ("/health", "Health"),
            ("/v1/runs", "Runs"),
            ("/v1/nothing", "Error"),
            ("/v1/models/nothing", "OpenAIError"),
        ):
            check(name, (await http.get(path)).json())
        check("Answer", (await http.post("/v1/call", json=QUERY)).json())
        check("Error", (await http.post("/v1/call", json={})).json())
        body = {"params": {"model": "scripted"}, "input": chat}
        waits = (await http.post("/v1/call", json={"capability": "llm.chat", "body": body})).json()
        check("Waits", waits)
        (pending,) = waits["pending"]
        run, call = f"/v1/runs/{waits['run']}", pending["tool_call_id"]
        check("Run", (await http.get(run)).json())
        check("Runs", (await http.get("/v1/runs")).json())
        changed = {"call": call, "arguments": {**POST, "title": "Jelly"}}
        check("Pending", (await http.post(f"{run}/preview", json=changed)).json())
        said = {"call": call, "decision": "deny", "shown": pending["arguments_digest"]}
        check("Said", said)
        check("Taken", (await http.post(f"{run}/decisions", json=said)).json())
        check("Run", (await http.post(f"{run}/cancel")).json())
        asked = {"model": "scripted", "messages": [{"role": "user", "content": "x"}]}
        check("ChatCompletion", (await http.post("/v1/chat/completions", json=asked)).json())
