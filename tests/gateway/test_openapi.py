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

_ELSEWHERE = ("/v1/socket", "/mcp", "/page", "/openapi.json", "/v1/session", "/v1/runs")
"""Described in words: other protocols, the page's own door, and runs."""


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
