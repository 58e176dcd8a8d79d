"""The description for programs is valid OpenAPI 3.1, and says what there is."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from hearthnet.contracts.registry import contracts
from hearthnet.contracts.schema import compile_schema
from hearthnet.gateway.api import openapi
from hearthnet.gateway.auth.clients import everything
from hearthnet.gateway.http.errors import STATUS
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
        schemas["RagQueryV1Request"]["properties"]
        == contracts().get("rag.query@1.0").request_schema["properties"]
    )
    assert "AuthTokenIssueV1Request" not in schemas
    compile_schema({**description, "anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in schemas]})
    told = set(description["paths"]["/v1/call"]["post"]["responses"])
    assert told == {"200", *map(str, STATUS.values())}
    assert set(schemas["Error"]["properties"]["error"]["enum"]) == set(STATUS)


@pytest.mark.req("HTTP-9")
@pytest.mark.asyncio
async def test_every_route_is_in_it(house: House) -> None:
    from hearthnet.gateway.app import parts

    described = {re.sub(r"^/v1/call/[a-z].*", "/v1/call/{capability}", path) for path in _paths()}
    routes = [route for part in parts() for route in part.routes(house.gateway) if isinstance(route, Route)]
    paths = {route.path.replace(":path}", "}") for route in routes}
    own = {path for path in paths if not path.startswith(_ELSEWHERE) and path != "/"}
    assert own == described


def _paths() -> dict[str, Any]:
    found: dict[str, Any] = openapi.description()["paths"]
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _references(one)


@pytest.mark.req("HTTP-40")
def test_every_component_is_reached_from_a_path() -> None:
    components = openapi.description()["components"]
    reached: set[str] = set()
    following = set(_references(_paths()))
    while following:
        reached |= following
        named = (reference.split("/")[1:] for reference in following)
        following = {one for _, kind, name in named for one in _references(components[kind][name])} - reached
    every = {f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in components[kind]}
    assert reached == every


@pytest.mark.req("HTTP-40")
def test_every_capability_of_one_request_has_a_path() -> None:
    carried = {f"/v1/call/{one.id}" for one in contracts() if not (one.side_effects and one.stream_schema)}
    of_guests = {f"/v1/call/{one.id}" for one in contracts() if one.name in everything()}
    assert carried & of_guests <= set(_paths())
    assert {path for path in _paths() if path.startswith("/v1/call/") and "{" not in path} <= carried
    assert "client_id" not in _required("MarketPostV1Request")
    assert "query" in _required("RagQueryV1Request")


def _required(name: str) -> list[str]:
    found: list[str] = openapi.description()["components"]["schemas"][name]["properties"]["input"]["required"]
    return found


PROGRAM = """
import sys
from hearth_net_gateway_client import AuthenticatedClient
from hearth_net_gateway_client.api.calls import call_market_post_v1, call_rag_query_v1
from hearth_net_gateway_client.models import Error, MarketPostV1Request, RagQueryV1Request

with AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2]) as client:
    def query(corpus):
        body = RagQueryV1Request.from_dict({"params": {"corpus": corpus}, "input": {"query": "water"}})
        return call_rag_query_v1.sync(client=client, body=body)

    print(query("probe").output.chunks[0].text)
    missing = query("none")
    print(isinstance(missing, Error), missing.error.value)
    post = {"params": {}, "input": {"category": "offer", "title": "Jam", "body": "Plum."}}
    print(call_market_post_v1.sync(client=client, body=MarketPostV1Request.from_dict(post)).output.lamport)
"""


@pytest.mark.req("HTTP-40")
@pytest.mark.asyncio
async def test_generated_client_calls_a_capability(house: House, tmp_path: Path) -> None:
    document, config, made = tmp_path / "openapi.json", tmp_path / "config.yaml", tmp_path / "made"
    config.write_text("post_hooks: []\n")
    guest = house.guest()
    async with house.http() as http:
        document.write_bytes((await http.get("/openapi.json")).content)
    arguments: list[str | Path] = ["--path", document, "--output-path", made, "--config", config]
    complaints = await run(Path(sys.executable).with_name("openapi-python-client"), "generate", *arguments)
    assert "warning" not in complaints.lower(), complaints
    program = made / "program.py"
    program.write_text(PROGRAM)
    key = guest.bearer["Authorization"].removeprefix("Bearer ")
    said = (await run(sys.executable, program, house.url, key)).splitlines()
    assert said == ["about water", "True not_found", "1"]
    assert [post.body["input"]["title"] for post in house.workshop.posts] == ["Jam"]


async def run(*command: str | Path) -> str:
    """What a program prints, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, said.decode()
    return said.decode()


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
            ("/v1/nothing", "OpenAIError"),
            ("/nothing", "Error"),
            ("/v1/models/nothing", "OpenAIError"),
        ):
            check(name, (await http.get(path)).json())
        check("Answer", (await http.post("/v1/call", json=QUERY)).json())
        check("Error", (await http.post("/v1/call", json={})).json())
        direct = await http.post("/v1/call/rag.query@1.0", json=QUERY["body"])
        check("RagQueryV1Response", direct.json())
        file = {"params": {}, "input": {"cid": "blake3:" + "0" * 64}}
        check("Error", (await http.post("/v1/call/file.read", json=file)).json())
        body = {"params": {"model": "scripted"}, "input": chat}
        check("LlmChatV2Request", body)
        check("MarketPostV1Request", {"params": {}, "input": POST})
        check("Waits", (await http.post("/v1/call/llm.chat@2.0", json=body)).json())
        waits = (await http.post("/v1/call", json={"capability": "llm.chat", "body": body})).json()
        check("Waits", waits)
        (pending,) = waits["pending"]
        run, call = f"/v1/runs/{waits['run']}", pending["tool_call_id"]
        check("Run", (await http.get(run)).json())
        check("Runs", (await http.get("/v1/runs")).json())
        changed = {"call": call, "arguments": {**POST, "title": "Jelly"}}
        check("Pending", (await http.post(f"{run}/preview", json=changed)).json())
        said = {"call": call, "decision": "deny"}
        check("Said", said)
        check("Taken", (await http.post(f"{run}/decisions", json=said)).json())
        check("Run", (await http.post(f"{run}/cancel")).json())
        asked = {"model": "scripted", "messages": [{"role": "user", "content": "x"}]}
        check("ChatCompletion", (await http.post("/v1/chat/completions", json=asked)).json())
