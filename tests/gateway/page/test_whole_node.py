"""The page of a node as people run it: its gateway killed while it answers, its owner at the command line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from hearthnet.core.home import Home
from hearthnet.core.node_state import GATEWAY, read_node_state
from hearthnet.gateway.socket.frames import SUBPROTOCOL
from hearthnet.gateway.socket.hub import PATH
from tests.gateway.events import events_of
from tests.gateway.page.street import PATIENCE_MS, open_browser
from tests.helpers.processes import kill, unused_port
from tests.helpers.scripted_model import Say, ScriptedModel
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
SETTINGS: Final = """\
[server]
port = 0
[community]
port = 0
[services]
enabled = ["llm", "market"]
[gateway]
port = {port}
[llm]
builtin = false
{model}
"""
TOOL: Final = "list_marketplace"


@dataclass
class Node:
    """A node as people run it, its scripted model and a browser."""

    shell: Shell
    model: ScriptedModel
    browser: Browser
    url: str

    async def kill_gateway(self) -> None:
        """Ends the gateway by SIGKILL; returns when the supervisor has another one at the same address."""
        home = Home(self.shell.home)

        def gateway() -> Any:
            return next(one for one in read_node_state(home).services if one.name == GATEWAY)

        before = gateway()
        kill(before.pid)

        def back() -> bool:
            now = gateway()
            return bool(now.address == self.url and now.pid != before.pid)

        await wait_for(back, 60, "the gateway")

    @contextlib.asynccontextmanager
    async def page(self, link: str = "") -> AsyncIterator[Page]:
        """A window that was opened by `link`, by default one of the owner's."""
        context = await self.browser.new_context(locale="en-US")
        context.set_default_timeout(PATIENCE_MS)
        try:
            page = await context.new_page()
            made = {"url": link} if link else await asyncio.to_thread(self.shell.json, "link", "--json")
            await page.goto(made["url"])
            await page.wait_for_selector("#question")
            yield page
        finally:
            await context.close()

    async def program(self) -> dict[str, str]:
        """What a program shows: the key of a new client."""
        made = await asyncio.to_thread(self.shell.json, "clients", "add", "tool", "--json")
        return {"Authorization": f"Bearer {made['secret']}"}

    def http(self, headers: dict[str, str]) -> httpx2.AsyncClient:
        """A program that asks over HTTP."""
        return httpx2.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=60)

    def socket(self, headers: dict[str, str]) -> connect:
        """A program that asks over the socket."""
        address = self.url.replace("http", "ws") + PATH
        return connect(
            address,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            additional_headers=headers,
            proxy=None,
            open_timeout=60,
        )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, ScriptedModel]]:
    """The node and its model."""
    shell = Shell(tmp_path_factory.mktemp("killed") / "home")
    shell.home.mkdir()
    with ScriptedModel() as model:
        text = SETTINGS.format(port=unused_port(), model=model.config)
        (shell.home / "hearthnet.toml").write_text(text)
        with shell.node():
            yield shell, model


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node(running: tuple[Shell, ScriptedModel]) -> AsyncIterator[Node]:
    """The same with a browser."""
    shell, model = running
    async with open_browser() as browser:
        yield Node(shell, model, browser, read_node_state(Home(shell.home)).gateway_url)


async def ask(page: Page, model: ScriptedModel, question: str, tool: str = TOOL) -> None:
    """Asks something whose answer never ends, and waits until it has begun."""
    model.turns[question] = [Say(forever=True)]
    if tool:
        await page.wait_for_selector(f"#tool-{tool}", state="attached")
        await page.click("#tools")
        await page.check(f"#tool-{tool}")
        await page.click("#tools")
    await page.fill("#question", question)
    await page.press("#question", "Enter")
    await expect(page.locator(".answer .text")).to_contain_text("on on on")


async def answered(page: Page, words: str) -> None:
    await expect(page.locator(".answer[data-state=done] .text")).to_have_text(words)
    assert await page.locator(".answer").count() == 1


@pytest.mark.req("PAGE-19")
async def test_page_gateway_killed_question_is_asked_again(node: Node) -> None:
    """In windows that wait, with tools and without, by itself; in one that is opened later, by a button."""
    async with node.page() as one, node.page() as other, node.page() as third:
        await ask(one, node.model, "With tools?")
        await ask(other, node.model, "Without?", tool="")
        await ask(third, node.model, "Later?")
        later = await third.context.new_page()
        await third.close()
        node.model.turns.clear()
        for question in ("With tools?", "Without?", "Later?"):
            node.model.turns[question] = [Say(f"{question} Yes.")]
        await node.kill_gateway()
        await answered(one, "With tools? Yes.")
        await answered(other, "Without? Yes.")
        await later.goto(f"{node.url}/#ask")
        await later.get_by_role("button", name="Ask again").click()
        await answered(later, "Later? Yes.")


@pytest.mark.req("PAGE-19")
async def test_page_killed_twice_the_person_asks_again(node: Node) -> None:
    """A question that takes the gateway down is not asked for ever."""
    question = "What kills you?"
    async with node.page() as page:
        await ask(page, node.model, question)
        asked = len(node.model.requests)
        await node.kill_gateway()
        await wait_for(lambda: len(node.model.requests) > asked, 30, "the question")
        await expect(page.locator(".answer .text")).to_contain_text("on on on")
        await node.kill_gateway()
        again = page.get_by_role("button", name="Ask again")
        await expect(again).to_be_visible()
        await expect(page.locator(".answer .state")).to_have_text("The answer was cut off.")
        assert await page.get_by_role("button", name="Go on").count() == 0
        node.model.turns[question] = [Say("Nothing any more.")]
        await again.click()
        await answered(page, "Nothing any more.")


def call_of(question: str) -> dict[str, Any]:
    given = {"messages": [{"role": "user", "content": question}], "tools": [TOOL]}
    return {"capability": "llm.chat", "version": "2.0", "body": {"params": {}, "input": given}}


async def heard(line: ClientConnection, event: str) -> dict[str, Any]:
    """The data of the next such event."""
    while True:
        frame: dict[str, Any] = msgspec.json.decode(await line.recv())
        if frame["event"] == event:
            data: dict[str, Any] = frame["data"]
            return data


async def torn_answer(node: Node, http: httpx2.AsyncClient) -> None:
    """A question over HTTP; the gateway is killed at its first word."""
    as_events = {"Accept": "text/event-stream"}
    async with http.stream("POST", "/v1/call", json=call_of("HTTP?"), headers=as_events) as answer:
        async for event in events_of(answer):
            if event.event == "token":
                await node.kill_gateway()


async def broken_run(node: Node, headers: dict[str, str]) -> dict[str, Any]:
    """The stream and run of a question over the socket; it and one over HTTP are cut by the kill."""
    async with node.socket(headers) as line, node.http(headers) as http:
        await line.send(msgspec.json.encode({"type": "call", **call_of("Socket?")}).decode())
        opened = await heard(line, "opened")
        await heard(line, "token")
        with pytest.raises(httpx2.TransportError):
            await torn_answer(node, http)
        with pytest.raises(ConnectionClosed):
            await heard(line, "done")
    return opened


@pytest.mark.req("SESS-19")
async def test_program_gateway_killed_run_is_gone_and_says_so(node: Node) -> None:
    """Going on with a run that had called nothing: `not_found` that says to ask again, which works."""
    node.model.turns |= {"Socket?": [Say(forever=True)], "HTTP?": [Say(forever=True)]}
    headers = await node.program()
    opened = await broken_run(node, headers)
    node.model.turns |= {"Socket?": [Say("Socket.")], "HTTP?": [Say("HTTP.")]}
    async with node.http(headers) as http:
        assert (await http.get("/v1/runs")).json() == {"runs": []}
        gone = await http.post("/v1/call", json={"run": opened["run"]})
        assert (gone.status_code, gone.json()["error"]) == (404, "not_found")
        assert "ask again" in gone.json()["message"]
        done = await http.post("/v1/call", json=call_of("HTTP?"))
        assert done.json()["output"]["message"]["content"].strip() == "HTTP."
    for place in ({"stream": opened["stream"], "after": 0}, {"run": opened["run"]}):
        async with node.socket(headers) as line:
            await line.send(msgspec.json.encode({"type": "resume", **place}).decode())
            error = await heard(line, "error")
            assert error["error"] == "not_found"
            assert "ask again" in error["message"]
    async with node.socket(headers) as line:
        await line.send(msgspec.json.encode({"type": "call", **call_of("Socket?")}).decode())
        assert (await heard(line, "done"))["stop_reason"] == "end"


# --- the owner at the command line and at the page


def posts(node: Node, question: str, title: str) -> None:
    """Asked `question`, the model wants to post under `title`."""
    call = ("market_post", {"category": "info", "title": title, "body": "Read this."})
    node.model.turns[question] = [Say("I write it.", (call,)), Say(f"{title}: done.")]


async def titles(node: Node) -> list[str]:
    found = await asyncio.to_thread(node.shell.json, "market", "list", "--json")
    return [post["title"] for post in found["posts"]]


async def decide(page: Page, question: str, choice: str) -> None:
    """Decides at the page about the one call of the run of `question`, which was asked elsewhere."""
    await page.click("#nav-waiting")
    card = page.locator(".runs .card").filter(has_text=question)
    await expect(card).to_contain_text("asked at the command line")
    await card.get_by_role("button", name="Look and decide").click()
    await page.click(f"dialog [data-choice={choice}]")


@pytest.mark.req("SESS-20")
async def test_terminal_question_is_answered_at_the_page(node: Node) -> None:
    """Once while the terminal asks for it, once where nobody was there: then the page goes on with it."""
    posts(node, "Terminal waits", "From the terminal")
    posts(node, "Nobody there", "From nobody")
    async with node.page() as page:
        with node.shell.terminal("ask", "Terminal waits", "--tool", "market_post") as there:
            await asyncio.to_thread(there.expect, "From the terminal")
            await decide(page, "Terminal waits", "approve")
            await asyncio.to_thread(there.expect, "From the terminal: done.")
            assert await asyncio.to_thread(there.end) == 0
        done = await asyncio.to_thread(node.shell.run, "ask", "Nobody there", "--tool", "market_post")
        assert done.returncode == 7, done.stderr
        await decide(page, "Nobody there", "approve")
        await expect(page.locator(".answer[data-state=done] .text").last).to_have_text("From nobody: done.")
    assert {"From the terminal", "From nobody"} <= set(await titles(node))


@pytest.mark.req("SESS-20")
async def test_page_question_is_answered_at_the_terminal(node: Node) -> None:
    posts(node, "Page waits", "From the page")
    async with node.page() as page:
        await page.wait_for_selector("#tool-market_post", state="attached")
        await page.click("#tools")
        await page.check("#tool-market_post")
        await page.fill("#question", "Page waits")
        await page.press("#question", "Enter")
        await page.wait_for_selector("dialog [data-choice]")
        (run,) = [
            one
            for one in await asyncio.to_thread(node.shell.json, "runs", "list", "--json")
            if one["pending"] and one["question"] == "Page waits"
        ]
        assert "you, at the page" in (await asyncio.to_thread(node.shell.run, "runs", "list")).stdout
        said = await asyncio.to_thread(node.shell.run, "runs", "approve", run["run"], "--yes")
        assert said.returncode == 0, said.stderr
        await expect(page.locator(".answer[data-state=done] .text").last).to_have_text("From the page: done.")
        assert await page.locator(".answer .card[data-status=completed]").count() == 1
    assert (await titles(node)).count("From the page") == 1


@pytest.mark.req("SESS-20")
async def test_guest_sees_nothing_of_the_terminal(node: Node) -> None:
    posts(node, "Not for guests", "Never")
    done = await asyncio.to_thread(node.shell.run, "ask", "Not for guests", "--tool", "market_post")
    assert done.returncode == 7, done.stderr
    link = await asyncio.to_thread(node.shell.json, "link", "--guest", "anna", "--json")
    async with node.page(link["url"]) as guest, node.http(await node.program()) as program:
        await guest.click("#nav-waiting")
        await expect(guest.locator(".runs")).to_have_text("Nothing waits for you.")
        assert (await program.get("/v1/runs")).json() == {"runs": []}
        async with node.page() as owner:
            await decide(owner, "Not for guests", "deny")
        await expect(guest.locator(".runs")).to_have_text("Nothing waits for you.")
    assert "Never" not in await titles(node)
