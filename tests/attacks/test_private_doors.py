"""A private corpus and a private file, asked for at each door of a node by who may not know of them.

Each question is asked twice: for what the home has, and for what it has not. The answers have to be the same.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from hearthnet.bus.session.keyring import load_identity
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.core.node_state import read_node_state
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.token import Scope, mint
from tests.attacks.conftest import Victim
from tests.helpers.full_house import UNLIMITED
from tests.helpers.neighbourhood import settle_in
from tests.helpers.scripted_model import NAME, Say
from tests.helpers.served import Served, served
from tests.helpers.shell import Shell

pytestmark = [pytest.mark.e2e, pytest.mark.req("ATTACK-62"), pytest.mark.asyncio]
TAXES = b"# Tax return\n\nThe income of the household was 31337 crowns.\n"
SECONDS = 60
FRAMES_THAT_END = ("done", "error", "suspended", "snapshot", "result")
Ask = Callable[[str, dict[str, Any], dict[str, Any]], Awaitable[str]]


@dataclass(frozen=True)
class Thing:
    """A corpus, and a document in it."""

    corpus: str
    cid: str

    def left_out(self, text: str) -> str:
        """Return `text` without this thing, and what differs between two calls."""
        for word in (self.cid, self.cid[:30], self.cid[:23], self.corpus):
            text = re.sub(re.escape(word), "THING", text, flags=re.IGNORECASE)
        text = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ULID", text)
        return re.sub(r'\\*"(ms|last_seen|expires_at|arguments_digest)\\*": ?(\\*"[^"]*"|\d+)', "", text)


HAS, HAS_NOT = Thing("taxes", content_hash(TAXES)), Thing("zebra", content_hash(b"nothing"))
NEARLY, NOT_NEARLY = Thing("taxe", HAS.cid), Thing("zebr", HAS_NOT.cid)


def questions(thing: Thing) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every capability that names a corpus, a document or a thing of the mesh, or lists them."""
    params, document = {"corpus": thing.corpus}, {"doc_cid": thing.cid}
    listed = f"select * from documents where corpus = '{thing.corpus}' or doc_cid = '{thing.cid}'"
    return [
        ("rag.query@1.0", params, {"query": "income"}),
        ("rag.query@1.0", params, {"query": "income", "filter": document}),
        ("rag.query@1.0", {"corpus": "system"}, {"query": "income", "filter": document}),
        ("rag.query@1.0", {"corpus": f"{thing.corpus}\n"}, {"query": "income"}),
        ("rag.query@1.0", {"corpus": thing.corpus.upper()}, {"query": "income"}),
        ("rag.list_documents@1.0", params, {}),
        ("rag.progress@1.0", params, document),
        ("rag.list_corpora@1.0", {}, {}),
        ("file.read@1.0", {}, {"cid": thing.cid}),
        ("file.list@1.0", {}, {"prefix": thing.cid[:30]}),
        ("mesh.search@1.0", {}, {"query": f"{thing.corpus} documents", "kind": "corpus"}),
        ("mesh.describe@1.0", {}, {"name": thing.corpus}),
        ("mesh.relations@1.0", {}, {"name": thing.corpus}),
        ("mesh.query@1.0", {}, {"sql": f"select * from corpora where name <> '{thing.corpus}'"}),
        ("mesh.query@1.0", {}, {"sql": listed}),
        ("mesh.query@1.0", {}, {"sql": "select count(*) from offers"}),
        ("mesh.neighbours@1.0", {}, {}),
    ]


@dataclass(frozen=True)
class House:
    """The node, its place on the bus, and the key of a program that may call all of `questions`."""

    node: Served
    victim: Victim
    key: str


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The owner has ingested and put a tax return, and shared nothing."""
    folder = tmp_path_factory.mktemp("doors")
    neighbourhood = settle_in(folder, "mallory", services=())
    home, shell = neighbourhood.founder, Shell(neighbourhood.founder.path)
    paper = folder / "return.md"
    paper.write_bytes(TAXES)
    with served(folder, "auth", "rag", "file", "mesh", settings=UNLIMITED, shell=shell) as node:
        assert shell.run("ingest", paper, "--corpus", HAS.corpus).returncode == 0
        state = read_node_state(home)
        assert state is not None
        victim = Victim(home, state.server.url, load_identity(home.device_key), neighbourhood)
        scope = {name.partition("@")[0] for name, _, _ in questions(HAS)}
        yield House(node, victim, node.key("llm.chat", *sorted(scope)))


async def over_http(house: House, stack: AsyncExitStack) -> Ask:
    """A program of the gateway."""
    headers = {"Authorization": f"Bearer {house.key}"}
    http = httpx2.AsyncClient(base_url=house.node.url, headers=headers, timeout=SECONDS, trust_env=False)
    await stack.enter_async_context(http)

    async def ask(name: str, params: dict[str, Any], fields: dict[str, Any]) -> str:
        body = {"params": params, "input": fields}
        answer = await http.post("/v1/call", json={"capability": name, "body": body})
        return f"{answer.status_code} {answer.text}"

    return ask


async def over_mcp(house: House, stack: AsyncExitStack) -> Ask:
    """A program that speaks MCP."""
    headers = {"Authorization": f"Bearer {house.key}"}
    http = httpx2.AsyncClient(headers=headers, timeout=SECONDS, trust_env=False)
    await stack.enter_async_context(http)
    transport = streamable_http_client(f"{house.node.url}/mcp", http_client=http)
    client = await stack.enter_async_context(Client(transport, cache=None))
    tools = (await client.list_tools()).model_dump_json()
    assert "rag_query" in tools
    assert HAS.corpus not in tools

    async def ask(name: str, params: dict[str, Any], fields: dict[str, Any]) -> str:
        tool = name.partition("@")[0].replace(".", "_")
        try:
            return (await client.call_tool(tool, {**params, **fields})).model_dump_json()
        except MCPError as error:
            return str(error)

    return ask


async def over_the_socket(house: House, stack: AsyncExitStack) -> Ask:
    """A program on a WebSocket."""
    url = f"ws{house.node.url.removeprefix('http')}/v1/socket"
    headers = {"Authorization": f"Bearer {house.key}"}

    async def talk(first: dict[str, Any]) -> str:
        shown = ""
        async with (
            asyncio.timeout(SECONDS),
            connect(
                url,
                subprotocols=[Subprotocol("hearthnet-bus.v2")],
                additional_headers=headers,
                proxy=None,
            ) as socket,
        ):
            await socket.send(json.dumps(first))
            while True:
                frame = json.loads(await socket.recv())
                shown += json.dumps(frame)
                if frame["event"] in FRAMES_THAT_END:
                    return shown

    topic = await talk({"type": "subscribe", "topic": "mesh"})
    assert "rag.query" in topic
    assert HAS.corpus not in topic

    async def ask(name: str, params: dict[str, Any], fields: dict[str, Any]) -> str:
        body = {"params": params, "input": fields}
        return await talk({"type": "call", "capability": name, "body": body})

    return ask


async def as_a_member(house: House, stack: AsyncExitStack) -> Ask:
    """A plain member with its own key."""
    mallory = await house.victim.attacker()
    stack.push_async_callback(mallory.bus.close)

    async def ask(name: str, params: dict[str, Any], fields: dict[str, Any]) -> str:
        body = {"params": params, "input": fields}
        try:
            return json.dumps((await mallory.bus.call(name, body, node=house.victim.node)).body)
        except HearthNetError as error:
            return json.dumps(error.to_body())

    return ask


async def by_a_deputy(house: House, stack: AsyncExitStack) -> Ask:
    """A member that has the home's own service make the call, under a token that names what it wants."""
    mallory, run = await house.victim.attacker(), ids.new_ulid()
    stack.push_async_callback(mallory.bus.close)
    view = await mallory.target("llm.tools.call@1.0", house.victim.node)

    async def ask(name: str, params: dict[str, Any], fields: dict[str, Any]) -> str:
        token = mint(
            mallory.peer.identity,
            subject=house.victim.node,
            audience=house.victim.community,
            scope=Scope(
                (name.partition("@")[0], "llm.tools.call"), {name: [value] for name, value in params.items()}
            ),
            now_ms=now_ms(),
            ttl_seconds=300,
            run=run,
        )
        target = {"target_capability": name, "target_body": {"params": params, "input": fields}}
        body = {"params": {}, "input": {"tool_call_id": "tc_1", "token": token, **target}}
        frames = await mallory._crafted(view, "llm.tools.call@1.0", body, run=run)
        return " ".join(frame.body.decode() for frame in frames)

    return ask


@pytest.mark.parametrize("door", [over_http, over_mcp, over_the_socket, as_a_member, by_a_deputy])
async def test_what_is_private_is_answered_as_what_is_not(house: House, door: Any) -> None:
    async with AsyncExitStack() as stack:
        ask = await door(house, stack)
        for one, other in ((HAS, HAS_NOT), (NEARLY, NOT_NEARLY)):
            for mine, others in zip(questions(one), questions(other), strict=True):
                there, nowhere = await ask(*mine), await ask(*others)
                assert one.left_out(there) == other.left_out(nowhere), mine
                assert not any(word in there for word in ("Tax return", "31337")), mine
                assert HAS.corpus not in nowhere, mine


async def test_a_models_tools_find_nothing_private(house: House) -> None:
    """The model of a program names the corpus, or the program fixes it in the tool."""
    with house.node.http(house.key) as http:
        for one, other in ((HAS, HAS_NOT), (NEARLY, NOT_NEARLY)):
            for is_fixed in (False, True):
                told = []
                for thing in (one, other):
                    named = {"corpus": thing.corpus}
                    arguments = {"query": "income"} if is_fixed else {"query": "income", **named}
                    turn = Say(calls=(("search_corpus", arguments), ("list_corpora", {})))
                    tool = {"use": "search_corpus", "params": named} if is_fixed else "search_corpus"
                    body = {
                        "model": NAME,
                        "messages": house.node.ask(turn, Say("Done.")),
                        "hearthnet": {"tools": [tool, "list_corpora"]},
                    }
                    answer = await asyncio.to_thread(http.post, "/v1/chat/completions", json=body)
                    assert answer.status_code == 200, answer.text
                    messages = house.node.model.requests[-1]["messages"]
                    results = [one["content"] for one in messages if one["role"] == "tool"]
                    assert len(results) == 2, messages
                    told.append(thing.left_out(str(results)))
                assert told[0] == told[1]
                assert "not_found" in told[0]
                assert "31337" not in told[0]
