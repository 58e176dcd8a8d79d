"""The description for programs is valid OpenAPI 3.1, and says what there is."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route

from hearthnet.contracts.registry import contracts
from hearthnet.contracts.schema import compile_schema
from hearthnet.gateway.api import openapi
from hearthnet.gateway.auth.client_tokens import everything
from hearthnet.gateway.http.errors import STATUS
from tests.helpers.gateway import House
from tests.helpers.scripted_model import Say

POST = {"category": "offer", "title": "Jam", "body": "Plum."}
QUERY = {"capability": "rag.query", "body": {"params": {"corpus": "probe"}, "input": {"query": "water"}}}
CHAT = "llm.chat@2.0"
_PAGES_OWN = ("/page", "/v1/session", "/v1/device", "/v1/objection", "/v1/conversations")
_ELSEWHERE = ("/v1/socket", "/mcp", "/openapi.json", *_PAGES_OWN)
"""Described in words: other protocols, and what programs do not have."""


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
    from hearthnet.gateway.app import routes_of

    described = {re.sub(r"^/v1/call/[a-z].*", "/v1/call/{capability}", path) for path in _paths()}
    routes = [route for route in routes_of(house.gateway) if isinstance(route, Route)]
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
    of_invites = {"/v1/call/community.join@1.0", "/v1/call/community.sync@1.0"}
    described = {path for path in _paths() if path.startswith("/v1/call/") and "{" not in path}
    assert described == (carried & of_guests) | of_invites
    assert _required("MarketPostV1Request") == ["category", "title", "body"]
    assert _required("RagQueryV1Request") == ["query"]


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


def conforms(schema: dict[str, Any], value: Any) -> None:
    """`value` is what a schema of the description says."""
    assert compile_schema({**openapi.description(), **schema}).errors(value) == []


def named(name: str) -> dict[str, Any]:
    """The schema of that name."""
    return {"$ref": f"#/components/schemas/{name}"}


def check(path: str, status: int, answer: httpx2.Response, name: str = "") -> None:
    """`answer` has this status, and is what the description says that it is under the path.

    `name`: that of its schema, where there are several.
    """
    assert answer.status_code == status, answer.text
    responses = _paths()[path][answer.request.method.lower()]["responses"]
    said = responses.get(str(status)) or responses["default"]
    if "$ref" in said:
        said = openapi.description()["components"]["responses"][said["$ref"].rpartition("/")[2]]
    conforms(said["content"]["application/json"]["schema"], answer.json())
    if name:
        conforms(named(name), answer.json())


@pytest.mark.req("HTTP-9")
@pytest.mark.asyncio
async def test_what_is_answered_is_what_it_says(house: House) -> None:
    guest = house.guest()
    house.model.turns["post"] = [Say(calls=(("market_post", POST),)), Say("Posted.")]
    chat = {"messages": [{"role": "user", "content": "post"}], "tools": ["market.post"]}
    async with house.http(guest) as http:
        for path in ("/v1/capabilities", "/v1/models", "/v1/me", "/health", "/v1/runs"):
            check(path, 200, await http.get(path))
        check("/v1/models/{model}", 200, await http.get("/v1/models/mesh"))
        check("/v1/models/{model}", 404, await http.get("/v1/models/nothing"))
        conforms(named("OpenAIError"), (await http.get("/v1/nothing")).json())
        conforms(named("Error"), (await http.get("/nothing")).json())
        check("/v1/call", 200, await http.post("/v1/call", json=QUERY), "Answer")
        check("/v1/call", 400, await http.post("/v1/call", json={}))
        query = "/v1/call/rag.query@1.0"
        check(query, 200, await http.post(query, json=QUERY["body"]))
        file = {"params": {}, "input": {"cid": "blake3:" + "0" * 64}}
        check("/v1/call/{capability}", 404, await http.post("/v1/call/file.read", json=file))
        body = {"params": {"model": "scripted"}, "input": chat}
        takes(f"/v1/call/{CHAT}", body)
        takes("/v1/call/market.post@1.0", {"params": {}, "input": POST})
        check(f"/v1/call/{CHAT}", 200, await http.post(f"/v1/call/{CHAT}", json=body), "Waits")
        answer = await http.post("/v1/call", json={"capability": "llm.chat", "body": body})
        check("/v1/call", 200, answer, "Waits")
        waits = answer.json()
        (pending,) = waits["pending"]
        run, call = f"/v1/runs/{waits['run']}", pending["tool_call_id"]
        check("/v1/runs/{run}", 200, await http.get(run))
        check("/v1/runs", 200, await http.get("/v1/runs"))
        changed = {"call": call, "arguments": {**POST, "title": "Jelly"}}
        takes("/v1/runs/{run}/preview", changed)
        check("/v1/runs/{run}/preview", 200, await http.post(f"{run}/preview", json=changed))
        said = {"call": call, "decision": "deny"}
        takes("/v1/runs/{run}/decisions", said)
        check("/v1/runs/{run}/decisions", 200, await http.post(f"{run}/decisions", json=said))
        check("/v1/runs/{run}/cancel", 200, await http.post(f"{run}/cancel"))
        asked = {"model": "scripted", "messages": [{"role": "user", "content": "x"}]}
        takes("/v1/chat/completions", asked)
        check("/v1/chat/completions", 200, await http.post("/v1/chat/completions", json=asked))


def takes(path: str, body: dict[str, Any]) -> None:
    """`body` is what the description says that a request is to this path."""
    conforms(_paths()[path]["post"]["requestBody"]["content"]["application/json"]["schema"], body)
