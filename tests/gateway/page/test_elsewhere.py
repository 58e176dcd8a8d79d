"""Pages of other origins in a real browser: OpenAI's own package, MCP, and a WebSocket, each with a key."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from tests.gateway.page.street import FLAGS, PATIENCE_MS, WINDOWED, open_browser, require
from tests.helpers.gateway import Guest, House, open_house
from tests.helpers.loopback import Loopback
from tests.helpers.scripted_model import NAME, Say

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.req("GATE-16")]
PACKAGES = Path(__file__).parents[2] / "clients" / "node_modules"
KINDS = {".mjs": "text/javascript", ".js": "text/javascript"}

CHAT = """async ([base, key, model]) => {
    const { OpenAI } = await import("/openai/index.mjs")
    const options = { apiKey: key, dangerouslyAllowBrowser: true, maxRetries: 0 }
    const client = new OpenAI({ baseURL: base + "/v1", ...options })
    const messages = [{ role: "user", content: "From elsewhere" }]
    const whole = await client.chat.completions.create({ model, messages })
    let streamed = ""
    for await (const chunk of await client.chat.completions.create({ model, messages, stream: true }))
        streamed += chunk.choices[0]?.delta?.content ?? ""
    const models = (await client.models.list()).data.map((one) => one.id)
    const refused = await client.models.retrieve("nobody").catch((error) => error.status)
    return [whole.choices[0].message.content.trim(), streamed.trim(), models.includes(model), refused]
}"""
MCP = """async ([base, key]) => {
    const send = (method, params) => fetch(base + "/mcp", {
        method: "POST",
        headers: {
            authorization: "Bearer " + key, "content-type": "application/json",
            accept: "application/json, text/event-stream",
            "mcp-protocol-version": "2025-06-18", "mcp-method": method, "mcp-name": "page",
        },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    })
    const clientInfo = { name: "page", version: "1" }
    const answer = await send("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo })
    const session = answer.headers.get("mcp-session-id")
    return [answer.status, session !== null, (await answer.text()).includes("HearthNet")]
}"""
SOCKET = """([base, frame]) => new Promise((resolve) => {
    const socket = new WebSocket(base.replace("http", "ws") + "/v1/socket", ["hearthnet-bus.v2"])
    const events = []
    socket.onopen = () => socket.send(JSON.stringify(frame))
    socket.onmessage = (message) => {
        const event = events[events.push(JSON.parse(message.data).event) - 1]
        if (event === "opened" && frame.type === "subscribe") socket.send('{"type":"cancel"}')
    }
    socket.onclose = (close) => resolve([close.code, events])
})"""
TRIES = """async ([base, path, options]) => {
    try {
        const answer = await fetch(base + path, options)
        return [answer.status, await answer.json()]
    } catch (error) {
        return [0, error.message]
    }
}"""


class Elsewhere(Loopback):
    """Another web server: an empty page, and OpenAI's package for JavaScript as it is published."""

    def handler(self) -> type[BaseHTTPRequestHandler]:
        return _Handler

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    owner: Elsewhere

    def log_message(self, format: str, *args: Any) -> None:
        """Tests show what matters themselves."""

    def do_GET(self) -> None:
        file = (PACKAGES / self.path.lstrip("/")).resolve()
        kind = KINDS.get(file.suffix, "text/html")
        body = (
            file.read_bytes()
            if file.suffix in KINDS and file.is_relative_to(PACKAGES)
            else b"<!doctype html>"
        )
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@dataclass
class Place:
    """A gateway that allows one other origin, and a browser."""

    house: House
    browser: Browser
    friend: Elsewhere
    stranger: Elsewhere

    @asynccontextmanager
    async def page(self, at: str, guest: Guest | None = None) -> AsyncIterator[Page]:
        """A window at `at`; with a guest the browser holds its cookie of the gateway too."""
        context = await self.browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        if guest is not None:
            ((name, value),) = guest.cookies.items()
            await context.add_cookies(
                [
                    {
                        "name": name,
                        "value": value,
                        "url": self.house.url,
                        "sameSite": "Strict",
                        "httpOnly": True,
                    }
                ]
            )
        try:
            page = await context.new_page()
            await page.goto(at)
            yield page
        finally:
            await context.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place() -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hn-elsewhere-"))
        friend, stranger = stack.enter_context(Elsewhere()), stack.enter_context(Elsewhere())
        settings = f'[gateway]\nport = 0\norigins = ["{friend.origin}", "chrome-extension://*"]\n\n'
        house = await stack.enter_async_context(open_house(Path(folder), settings))
        yield Place(house, await stack.enter_async_context(open_browser()), friend, stranger)


def key_of(guest: Guest) -> str:
    return guest.bearer["Authorization"].removeprefix("Bearer ")


async def test_openai_package_works_on_an_allowed_page(place: Place) -> None:
    place.house.model.turns["From elsewhere"] = [Say("Good day.")]
    async with place.page(place.friend.origin) as page:
        found = await page.evaluate(CHAT, [place.house.url, key_of(place.house.guest()), NAME])
    assert found == ["Good day.", "Good day.", True, 404]


async def test_mcp_headers_pass_the_preflight(place: Place) -> None:
    async with place.page(place.friend.origin) as page:
        assert await page.evaluate(MCP, [place.house.url, key_of(place.house.guest())]) == [200, True, True]


@pytest.mark.parametrize("signed_in", [False, True])
@pytest.mark.parametrize("first", ["call", "subscribe"])
async def test_socket_takes_a_key_in_its_first_frame(place: Place, first: str, signed_in: bool) -> None:
    """Also where the browser adds the cookie of the gateway's own page, which counts for nothing here."""
    house, guest, other = place.house, place.house.guest(), place.house.guest()
    body = {"params": {"corpus": "probe"}, "input": {"query": "water"}}
    frame: dict[str, Any] = {"type": "call", "capability": "rag.query", "body": body}
    if first == "subscribe":
        frame = {"type": "subscribe", "topic": "mesh"}
    async with place.page(place.friend.origin, other if signed_in else None) as page:
        nobody = await page.evaluate(SOCKET, [house.url, frame])
        wrong = await page.evaluate(SOCKET, [house.url, {**frame, "token": "hnk_aaaaaaaa_" + "A" * 43}])
        code, events = await page.evaluate(SOCKET, [house.url, {**frame, "token": key_of(guest)}])
    assert nobody == wrong == [4401, ["error"]]
    assert (code, events[0]) == (1000, "opened")
    if first == "call":
        assert events == ["opened", "result", "done"]
        assert house.workshop.calls[-1].principal == house.client(guest).principal


async def test_errors_can_be_read_on_an_allowed_page(place: Place) -> None:
    key = {"authorization": f"Bearer {key_of(place.house.guest())}", "content-type": "application/json"}
    large = {"method": "POST", "headers": key, "body": "x" * 1_100_000}
    async with place.page(place.friend.origin) as page:
        for path, options, status, code in (
            ("/v1/me", {}, 401, "unauthorized"),
            ("/v1/nothing", {"headers": key}, 404, "not_found"),
            ("/v1/call", large, 413, "payload_too_large"),
        ):
            found, told = await page.evaluate(TRIES, [place.house.url, path, options])
            error = told["error"]["code"] if path == "/v1/nothing" else told["error"]
            assert (found, error) == (status, code)


async def test_other_origins_and_cookies_get_nothing(place: Place) -> None:
    house, guest = place.house, place.house.guest()
    key = {"headers": {"authorization": f"Bearer {key_of(guest)}"}}
    cookie = {"credentials": "include"}
    frame = {"type": "call", "capability": "rag.query", "body": {}, "token": key_of(guest)}
    async with place.page(place.stranger.origin, guest) as page:
        for options in (key, cookie, {}):
            assert (await page.evaluate(TRIES, [house.url, "/v1/me", options]))[0] == 0
        assert await page.evaluate(SOCKET, [house.url, frame]) == [1006, []]
    async with place.page(place.friend.origin, guest) as page:
        assert (await page.evaluate(TRIES, [house.url, "/v1/me", cookie]))[0] == 0
        assert (await page.evaluate(TRIES, [house.url, "/v1/me", {}]))[0] == 401
        assert (await page.evaluate(TRIES, [house.url, "/v1/me", key]))[1]["id"] == guest.entry.id


async def test_browser_extension_asks_and_opens_a_socket(place: Place, tmp_path: Path) -> None:
    house, key = place.house, key_of(place.house.guest())
    extension = tmp_path / "extension"
    extension.mkdir()
    manifest = {"manifest_version": 3, "name": "probe", "version": "1"}
    (extension / "manifest.json").write_text(json.dumps(manifest))
    (extension / "page.html").write_text("<!doctype html>")
    # An unpacked extension is known by the hash of its path, in letters from a to p.
    digits = hashlib.sha256(str(extension).encode()).hexdigest()[:32]
    name = digits.translate(str.maketrans("0123456789abcdef", "abcdefghijklmnop"))
    loaded = [f"--disable-extensions-except={extension}", f"--load-extension={extension}"]
    body = {"params": {"corpus": "probe"}, "input": {"query": "water"}}
    call = {"type": "call", "capability": "rag.query", "body": body, "token": key}
    require(WINDOWED)
    async with async_playwright() as driver:
        context = await driver.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=WINDOWED,
            args=[*FLAGS, *loaded],
            timeout=2 * PATIENCE_MS,
        )
        try:
            page = await context.new_page()
            await page.goto(f"chrome-extension://{name}/page.html")
            headers = {"authorization": f"Bearer {key}", "x-stainless-lang": "js"}
            assert (await page.evaluate(TRIES, [house.url, "/v1/me", {"headers": headers}]))[0] == 200
            assert (await page.evaluate(SOCKET, [house.url, call]))[1] == ["opened", "result", "done"]
        finally:
            await context.close()
