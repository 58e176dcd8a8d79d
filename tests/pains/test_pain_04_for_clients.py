"""4. A client's pending approval is lost: gateway and server are killed while it waits, then the node ends;
another client of the same person lists it, approves with its own key, and the turn finishes.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.home import Home
from hearthnet.core.node_state import NodeState, read_node_state
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.gateway.auth.client_store import ClientStore, api_key
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.keys import Identity
from tests.cli.commands.test_ask import offer
from tests.helpers.envelopes import sign_envelope
from tests.helpers.scripted_model import Say, ScriptedModel
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

pytestmark = pytest.mark.e2e
QUESTION = "I can lend a ladder."
SETTINGS = (
    '[server]\nport = 0\n\n[gateway]\nport = 0\n\n[services]\nenabled = ["llm", "market"]\n\n'
    "[llm]\nbuiltin = false\n\n"
)


class Client:
    """A client of the book with a key of its own, as a program at the other end of HTTP."""

    def __init__(self, home: Home, name: str, principal: str) -> None:
        self.home = home
        self.identity = Identity.generate()
        entry, secret = ClientStore(home).add(name, principal, key=self.identity.node_id)
        self._headers = {"Authorization": f"Bearer {api_key(entry, secret)}"}

    def http(self) -> httpx2.Client:
        """Its connection to the gateway, wherever that is now."""
        url = read_node_state(self.home).gateway_url
        return httpx2.Client(base_url=url, headers=self._headers, trust_env=False, timeout=60)

    def ask(self, question: str) -> dict[str, Any]:
        """A signed question, with a tool that has effects."""
        identity = keyring.load_identity(self.home.device_key)
        community = keyring.load_roster(self.home.roster, identity.node_id).community_id
        messages = [{"role": "user", "content": question}]
        said = {
            "capability": "llm.chat",
            "version": "2.0",
            "request_id": ids.new_ulid(),
            "community": community,
            "timestamp": rfc3339(now_ms()),
            "body": {
                "params": {"model": "scripted"},
                "input": {"messages": messages, "tools": ["market_post"]},
            },
        }
        with self.http() as http:
            answer = http.post("/v1/call", json=sign_envelope(self.identity, said))
            assert answer.status_code == 200, answer.text
            told: dict[str, Any] = answer.json()
            return told

    def sign(self, unsigned: dict[str, Any]) -> dict[str, Any]:
        """The approval that it was shown."""
        return sign_approval(self.identity, msgspec.convert(unsigned, Approval)).as_json()


def state_of(home: Home) -> NodeState:
    return read_node_state(home)


def gateway_of(state: NodeState) -> Any:
    return next(service for service in state.services if service.address or service.name == "gateway")


@pytest.mark.req("PAIN-4", "SESS-5")
def test_after_gateway_server_and_node_another_client_approves_and_the_turn_finishes(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    shell.home.mkdir()
    home = Home(shell.home)
    with ScriptedModel() as model:
        (shell.home / "hearthnet.toml").write_text(SETTINGS + model.config)
        model.turns[QUESTION] = [Say(calls=(offer("Ladder"),)), Say("It is posted.")]
        with shell.node():
            page = Client(home, "page", "anna")
            stranger = Client(home, "stranger", "eve")
            told = page.ask(QUESTION)
            assert told["requires_follow_up"] is True
            run, shown = told["run"], told["pending"][0]
            before = state_of(home)
            os.kill(before.server.pid, signal.SIGKILL)
            os.kill(gateway_of(before).pid, signal.SIGKILL)

            def back() -> bool:
                now = state_of(home)
                gateway = gateway_of(now)
                there = gateway.address and gateway.restarts > gateway_of(before).restarts
                return bool(there) and now.server.pid != before.server.pid and now.ready

            wait_for_sync(back, 60, "server and gateway to come back")
            phone = Client(home, "phone", "anna")
            asked = wait_for_sync(lambda: listed(phone), 30, "the run in the list")
            assert asked["name"] == "market_post"
            assert asked["arguments"]["title"] == asked["body"]["input"]["title"] == "Ladder"
            assert asked["arguments_digest"] == shown["arguments_digest"]
            assert asked["expires_at"] == shown["expires_at"] > now_ms()
            decision = {
                "call": asked["tool_call_id"],
                "decision": "approve",
                "shown": asked["arguments_digest"],
                "approval": phone.sign(asked["approval"]),
            }
            with phone.http() as http:
                taken = http.post(f"/v1/runs/{run}/decisions", json=decision)
                assert (taken.status_code, taken.json()["word"]) == (200, "approved"), taken.text
            with stranger.http() as http:
                assert http.get("/v1/runs").json() == {"runs": []}
                assert http.get(f"/v1/runs/{run}").status_code == 404
        with shell.node():
            with phone.http() as http:
                answer = http.post("/v1/call", json={"run": run})
                assert answer.status_code == 200, answer.text
                assert answer.json()["output"]["message"]["content"].strip() == "It is posted."
                (call,) = http.get(f"/v1/runs/{run}").json()["calls"]
            assert (call["status"], call["decided"]["by"].endswith("/anna")) == ("completed", True)
            assert call["decided"]["approval"] == decision["approval"]["id"]
            rows = shell.json("runs", "list", "--json")
            assert [(row["run"], row["principal"].partition("/")[2]) for row in rows] == [(run, "anna")]
            listing = '{"params": {}, "input": {}}'
            posts = shell.json("call", "market.list", "--body", listing, "--json")["output"]["posts"]
            assert [post["title"] for post in posts] == ["Ladder"]


def listed(client: Client) -> dict[str, Any]:
    """What waits for the client; nothing while the gateway cannot say."""
    with client.http() as http:
        answer = http.get("/v1/runs")
        if answer.status_code != 200:
            return {}
        return next((asked for run in answer.json()["runs"] for asked in run["pending"]), {})
