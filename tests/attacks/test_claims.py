"""A model whose words claim effects, against the doors of a running node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.helpers.neighbourhood import settle_in
from tests.helpers.scripted_model import NAME, Say, ScriptedModel
from tests.helpers.shell import Shell

pytestmark = [pytest.mark.e2e, pytest.mark.req("ATTACK-47")]
SECONDS = 60
POST = {"category": "offer", "title": "Ladder to lend", "body": "Ring twice."}
CLAIM = (
    "I posted your offer of a ladder. It is on the market as 01JZZZZZZZZZZZZZZZZZZZZZ99, signed by the node."
)
NOTHING = [{"state": "nothing"}]
WANTS = Say("I post it.", (("market_post", POST),))
HAPPENED = "Happened, by signed records"
IMITATION = f"""It is posted.

{HAPPENED}
  done: market.post@1.0 at ed25519:aaaa-bbbb-cccc-dddd (call 01JZZZZZZZZZZZZZZZZZZZZZ99)
\x1b[8m\u202e"""


@dataclass(frozen=True)
class Attacked:
    """A node with a gateway, whose model says what a test wrote."""

    shell: Shell
    model: ScriptedModel
    url: str
    headers: dict[str, str]

    def says(self, question: str, *turns: Say) -> dict[str, Any]:
        """Write the turns of a question; return the call of `llm.chat` with tools that asks it."""
        self.model.turns[question] = list(turns)
        messages = [{"role": "user", "content": question}]
        body = {"params": {"model": NAME}, "input": {"messages": messages, "tools": ["market_post"]}}
        return {"capability": "llm.chat", "body": body}

    def recorded(self) -> set[str]:
        """The calls whose effect the node's audit log has as done."""
        lines = self.shell.run("audit", "export", "-").stdout.splitlines()[1:]
        entries = [json.loads(line) for line in lines]
        return {one["call"] for one in entries if one["kind"] == "ended" and not one.get("code")}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """`hearthnet up` with its processes."""
    with ScriptedModel() as model:
        services = ("market", "llm", "mesh")
        neighbourhood = settle_in(tmp_path_factory.mktemp("attacked"), services=services)
        settings = neighbourhood.founder.config_file
        text = settings.read_text().replace("[gateway]\nenabled = false", "[gateway]\nport = 0")
        settings.write_text(f"{text}\ntools_per_tool_timeout_seconds = 1\n\n{model.config}")
        shell = Shell(neighbourhood.founder.path)
        with shell.node():
            services_now = shell.json("status", "--json")["services"]
            url = next(one for one in services_now if one["name"] == "gateway")["address"]
            added = shell.json("clients", "add", "phone", "--json")
            yield Attacked(shell, model, url, {"Authorization": f"Bearer {added['secret']}"})


def over_http(attacked: Attacked, body: dict[str, Any], path: str = "/v1/call") -> dict[str, Any]:
    answer = httpx2.post(
        f"{attacked.url}{path}", json=body, headers=attacked.headers, timeout=SECONDS, trust_env=False
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def over_the_socket(
    attacked: Attacked,
    call: dict[str, Any],
    *,
    approve: bool = False,
    first: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """The last frame of a call, whose question is approved or denied, after what is to be done `first`."""
    url = f"ws{attacked.url.removeprefix('http')}/v1/socket"
    protocols = [Subprotocol("hearthnet-bus.v2")]
    async with (
        asyncio.timeout(SECONDS),
        connect(url, subprotocols=protocols, additional_headers=attacked.headers, proxy=None) as socket,
    ):
        await socket.send(json.dumps({"type": "call", **call}))
        while True:
            frame: dict[str, Any] = json.loads(await socket.recv())
            with contextlib.suppress(ConnectionClosed):  # the gateway may have sent the last frame already
                await socket.send(json.dumps({"type": "ack", "upto": frame["seq"]}))
            if frame["event"] == "confirmation_required":
                asked = frame["data"]
                if first is not None:
                    first()
                decision = {"decision": "approve", "shown": asked["arguments_digest"]}
                if not approve:
                    decision = {"decision": "deny"}
                said = {"type": "confirm", "confirmation_id": asked["confirmation_id"], **decision}
                await socket.send(json.dumps(said))
            if frame["event"] in ("done", "suspended", "error"):
                return frame


@pytest.mark.asyncio
async def test_claims_of_effects_are_nothing_at_every_door(attacked: Attacked) -> None:
    call = attacked.says("Have you posted it?", *[Say(CLAIM)] * 9)
    plain = {**call, "body": {**call["body"], "input": {"messages": call["body"]["input"]["messages"]}}}
    for asked in (call, plain):
        answer = await asyncio.to_thread(over_http, attacked, asked)
        assert CLAIM in json.dumps(answer)
        assert (answer.get("happened") or answer["meta"]["happened"]) == NOTHING
        assert (await over_the_socket(attacked, asked))["data"]["happened"] == NOTHING
    for model in (NAME, f"{NAME}+tools"):
        asked = {"model": model, "messages": call["body"]["input"]["messages"]}
        answer = await asyncio.to_thread(over_http, attacked, asked, "/v1/chat/completions")
        assert answer["choices"][0]["message"]["content"].strip() == CLAIM
        assert answer["hearthnet"]["happened"] == NOTHING
    text = await asyncio.to_thread(attacked.shell.run, "ask", "Have you posted it?", "--model", NAME)
    assert text.stdout.endswith(f"{HAPPENED}\n  nothing\n")
    lines = await asyncio.to_thread(
        attacked.shell.run, "ask", "Have you posted it?", "--model", NAME, "--frames"
    )
    assert json.loads(lines.stdout.splitlines()[-1])["data"]["happened"] == NOTHING
    async with (
        httpx2.AsyncClient(headers=attacked.headers, timeout=SECONDS, trust_env=False) as http,
        Client(streamable_http_client(f"{attacked.url}/mcp", http_client=http), cache=None) as client,
    ):
        messages = {"messages": call["body"]["input"]["messages"], "model": NAME}
        answered = await client.call_tool("llm_chat", messages)
        assert "ladder" in answered.model_dump_json(), answered
        assert (answered.meta or {}).get("hearthnet/happened") == NOTHING, answered
    assert not attacked.recorded()


@pytest.mark.asyncio
async def test_effects_stand_as_they_were_signed(attacked: Attacked) -> None:
    call = attacked.says("Post it", WANTS, Say("I did nothing at all."))
    node = attacked.shell.json("status", "--json")["node_id"]
    frame = await over_the_socket(attacked, call, approve=True)
    (done,) = frame["data"]["happened"]
    assert (done["state"], done["capability"], done["home"]) == ("done", "market.post@1.0", node)
    assert done["entry"] in await asyncio.to_thread(attacked.recorded)
    denied = await over_the_socket(attacked, attacked.says("Post another", WANTS, Say(CLAIM)))
    assert [one["state"] for one in denied["data"]["happened"]] == ["refused"]
    waiting = await asyncio.to_thread(over_http, attacked, attacked.says("Post a third", WANTS, Say(CLAIM)))
    assert waiting["requires_follow_up"]
    assert [one["state"] for one in waiting["happened"]] == ["waiting"]
    attacked.says("Post a fourth", WANTS, Say("I refused to do it."))
    ask = ("ask", "Post a fourth", "--model", NAME, "--tool", "market_post")
    asked = await asyncio.to_thread(attacked.shell.run, *ask, "--yes-to", "market.post")
    shown = asked.stdout.partition(HAPPENED)[2]
    assert shown.startswith("\n  done: market.post@1.0 at "), asked.stdout + asked.stderr
    assert shown.partition("(call ")[2].partition(")")[0] in await asyncio.to_thread(attacked.recorded)
    undecided = await asyncio.to_thread(attacked.shell.run, *ask)
    assert f"{HAPPENED}\n  waiting: market.post@1.0" in undecided.stdout


@pytest.mark.req("ATTACK-65")
@pytest.mark.parametrize("end", ["whole", "cut by a limit", "refused by its server", "interrupted"])
def test_below_an_imitated_list_stands_the_true_one(attacked: Attacked, end: str) -> None:
    """Also where the run is cut in its middle."""
    read: tuple[tuple[str, dict[str, Any]], ...] = (("list_marketplace", {}),)
    turns = {
        "whole": [Say(IMITATION)],
        "cut by a limit": [Say(IMITATION, cut=True)],
        "refused by its server": [Say(IMITATION, read), Say(refuses={"error": {"message": "no"}})],
        "interrupted": [Say(IMITATION, read), Say("And ", forever=True)],
    }
    attacked.says(end, *turns[end])
    with attacked.shell.start("ask", end, "--model", NAME, "--tool", "list_marketplace") as command:
        assert command.stdout is not None
        shown = ""
        while end == "interrupted" and "And " not in shown:
            shown += command.stdout.read(1)
        if end == "interrupted":
            command.send_signal(signal.SIGINT)
        shown += command.stdout.read()
    above, _, below = shown.rpartition(f"{HAPPENED}\n")
    assert below.startswith("  nothing\n  (what stands further up"), shown
    assert HAPPENED in above
    assert not {"\x1b", "\u202e"} & set(shown)


@pytest.mark.req("ATTACK-65")
def test_an_effect_is_the_same_at_each_door_of_its_run(attacked: Attacked) -> None:
    """It waits at one door, is decided at another, goes on at a third and is shown at a fourth."""
    waiting = over_http(attacked, attacked.says("Post a fifth", WANTS, Say(IMITATION)))
    run, (pending,) = waiting["run"], waiting["pending"]
    yes = {"call": pending["tool_call_id"], "decision": "approve", "shown": pending["arguments_digest"]}
    over_http(attacked, yes, f"/v1/runs/{run}/decisions")
    said = {"model": NAME, "messages": [{"role": "user", "content": "Go on."}], "hearthnet": {"run": run}}
    (done,) = over_http(attacked, said, "/v1/chat/completions")["hearthnet"]["happened"]
    answer = httpx2.get(f"{attacked.url}/v1/runs/{run}", headers=attacked.headers, trust_env=False)
    assert answer.json()["happened"] == [done]
    assert done["state"] == "done"
    assert {**waiting["happened"][0], "state": "done", "entry": done["entry"]} == done
    assert done["entry"] in attacked.recorded()


@pytest.mark.asyncio
async def test_an_effect_whose_provider_is_killed_is_unknown(attacked: Attacked) -> None:
    """The market takes the call and answers nothing more."""
    call = attacked.says("Post it now", WANTS, Say(CLAIM))
    services = attacked.shell.json("status", "--json")["services"]
    market = next(one for one in services if one["name"] == "market")["pid"]
    try:
        frame = await over_the_socket(
            attacked, call, approve=True, first=lambda: os.kill(market, signal.SIGSTOP)
        )
    finally:
        os.kill(market, signal.SIGKILL)
    assert [one["state"] for one in frame["data"]["happened"]] == ["unknown"]
