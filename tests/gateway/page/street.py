"""A node with its gateway and real services, and a browser that opens its page.

The model is scripted, so that what it says and calls is the same each time; all else is real.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Playwright, async_playwright, expect

from hearthnet import Call, Offer, Reply, Stream, capability
from hearthnet.bus.bus import Bus
from hearthnet.core.config_loader import load_config
from hearthnet.gateway.context import Gateway
from hearthnet.gateway.server import serving
from hearthnet_llm import LlmService
from hearthnet_llm import service as llm_service
from hearthnet_market import MarketService
from hearthnet_mesh import MeshService
from tests.helpers.leaving import leave_out
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.probe import QUERY, ROW, Anything, ProbeService
from tests.helpers.processes import unused_port
from tests.helpers.scripted_model import ScriptedModel

CHROMIUM: Final = Path("/usr/bin/chromium-headless-shell")
"""Chromium without a window: two thirds of the processor time, and no extensions."""
WINDOWED: Final = Path("/usr/bin/chromium")
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SETTINGS: Final = "[server]\nport = 0\n\n[gateway]\nport = {port}\n\n[llm]\nbuiltin = false\n\n{model}"
META: Final = {"doc_cid": "blake3:" + "0" * 64, "chunk_id": "c"}
COMPLETE: Final = "llm.complete@1.0"
PATIENCE_MS: Final = 60_000
IMAGES: Final = Path(__file__).resolve().parents[3] / "docs" / "images"
PHONE: Final = {"width": 390, "height": 780}
DESK: Final = {"width": 1080, "height": 720}
expect.set_options(timeout=PATIENCE_MS)


class Library(ProbeService):
    """Answers `rag.query` for the corpus `manuals` with `text`, and `llm.complete` after ten steps."""

    name: ClassVar[str] = "library"

    def __init__(self) -> None:
        super().__init__()
        self.title = "Boiling water"
        self.text = "Boil water for three minutes."
        self.go = asyncio.Event()
        self.go.set()

    def offers(self) -> list[Offer]:
        """The two."""
        model = {"model": "steps", "ctx": 1000, "backend": "steps"}
        return [
            Offer(capability=QUERY, params={"corpus": "manuals"}, max_concurrent=8),
            Offer(capability=COMPLETE, params=model, max_concurrent=8),
        ]

    @capability(QUERY)
    async def query(self, call: Call[Anything, Anything]) -> Reply:
        """One passage."""
        self.calls.append(call)
        about: dict[str, Any] = {
            **META,
            "doc_title": self.title,
            "date": "2024-03-01",
            "sources": ["Field guide, p. 12"],
        }
        chunk = {**ROW, "text": self.text, "metadata": about}
        return Reply({"chunks": [chunk]}, {"corpus": "manuals", "embedding_model": None})

    @capability(COMPLETE)
    async def complete(self, call: Call[Anything, Anything], stream: Stream) -> Reply:
        """Ten steps, the last once `go` is set, then the answer."""
        try:
            for number in range(1, 11):
                if number == 10:
                    await self.go.wait()
                await stream.progress("reading", number, 10)
        except asyncio.CancelledError:
            self.stopped.append(call.id)
            raise
        meta = {"model": "steps", "tokens_in": 1, "tokens_out": 1, "stop_reason": "end"}
        return Reply({"text": "All ten."}, meta)


@dataclass
class Street:
    """The node, and ways to disturb it."""

    mesh: Mesh
    model: ScriptedModel
    library: Library
    market: MarketService
    browser: Browser
    port: int = field(default_factory=unused_port)
    gateway: Gateway | None = None
    _people: int = 0
    _open: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """The gateway begins, at the port it had."""
        config = SETTINGS.format(port=self.port, model=self.model.config)
        self.mesh.home.config_file.write_text(config)
        bus: Bus = await self._open.enter_async_context(await self.mesh.bus("gateway"))
        gateway = Gateway.on(bus, self.mesh.home, load_config(self.mesh.home))
        self.gateway = await self._open.enter_async_context(serving(gateway))
        self.port = urlsplit(gateway.url).port or 0

    async def stop(self) -> None:
        """The gateway ends."""
        await self._open.aclose()
        self._open, self.gateway = contextlib.AsyncExitStack(), None

    def link(self, principal: str = "") -> str:
        """A one-time link, by default for somebody new."""
        assert self.gateway is not None
        self._people += 1
        return self.gateway.links.link(self.url, principal or f"person-{self._people}")

    async def effects(self) -> list[dict[str, Any]]:
        """The posts that there are."""
        async with await self.mesh.bus("looking") as bus:
            reply = await bus.call("market.list@1.0", {"params": {}, "input": {"limit": 500}})
        found: list[dict[str, Any]] = reply.output["posts"]
        return found


@contextlib.asynccontextmanager
async def open_street(folder: Path) -> AsyncIterator[Street]:
    """All of it in `folder`."""
    async with contextlib.AsyncExitStack() as stack:
        browser = await stack.enter_async_context(open_browser())
        model = stack.enter_context(ScriptedModel())
        # On a busy machine the service looks at its server later, and nobody here follows its offers.
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(llm_service, "SETTLE_SECONDS", 20.0)
        mesh = await start_mesh(folder, stores=False)
        stack.callback(mesh.server.stop)
        mesh.home.config_file.write_text(SETTINGS.format(port=0, model=model.config))
        stack.enter_context(mesh.published())
        library, market = Library(), MarketService()
        for service in (library, market, MeshService(), LlmService()):
            await stack.enter_async_context(mesh.hosting(service))
        street = Street(mesh, model, library, market, browser)
        await street.start()
        stack.push_async_callback(street.stop)
        yield street


def require(browser: Path) -> None:
    """Leave the test out where the browser is not installed."""
    if not browser.exists():
        leave_out(f"there is no {browser}: make system-deps")


@contextlib.asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Debian's Chromium; where it is missing the test fails in CI, and elsewhere says what to do."""
    require(CHROMIUM)
    driver: Playwright
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM, args=list(FLAGS), timeout=2 * PATIENCE_MS
        )
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visit:
    """Somebody at the page: the window, and what went wrong or out of it meanwhile."""

    street: Street
    context: BrowserContext
    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    """Parts of console errors that this test provokes."""

    def check(self) -> None:
        """Nothing went wrong, and nothing left the origin."""
        unexpected = [one for one in self.errors if not any(part in one for part in self.allowed)]
        assert not unexpected, unexpected
        hosts = {urlsplit(one).netloc for one in self.requests if not one.startswith(("data:", "blob:"))}
        assert hosts <= {f"127.0.0.1:{self.street.port}"}, hosts

    async def ask(self, question: str, *tools: str, corpus: str = "") -> None:
        """Chooses tools and documents, and asks."""
        page = self.page
        if corpus:
            await page.select_option("#corpus", corpus)
        if tools:
            await page.click("#tools")
            for tool in tools:
                await page.check(f"#tool-{tool}")
            await page.click("#tools")
        await page.fill("#question", question)
        await page.press("#question", "Enter")

    async def answered(self, words: str) -> None:
        """Waits until the last answer holds `words` and is complete."""
        last = self.page.locator(".answer").last
        await last.locator(".text").get_by_text(words).first.wait_for()
        await last.and_(self.page.locator("[data-state=done]")).wait_for()

    async def card(self, status: str, nth: int = 0) -> None:
        """Waits until the card number `nth` has `status`."""
        card = self.page.locator(".answer .card").nth(nth)
        await card.and_(self.page.locator(f"[data-status={status}]")).wait_for()

    async def choose(self, choice: str) -> None:
        """Presses a button of the dialog; a person who approves has looked at the end of it before."""
        if choice == "approve":
            await self.page.locator("dialog .facts").evaluate(
                "facts => facts.scrollIntoView({block: 'center'})"
            )
        await self.page.click(f"dialog [data-choice={choice}]")

    async def picture(self, name: str) -> None:
        """A screenshot for the docs, where they are wanted."""
        if os.environ.get("HEARTHNET_SCREENSHOTS"):
            IMAGES.mkdir(parents=True, exist_ok=True)
            await self.page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


@contextlib.asynccontextmanager
async def visit(
    street: Street, *, signed_in: bool = True, principal: str = "", **options: Any
) -> AsyncIterator[Visit]:
    """A window of its own, signed in by a link; at its end nothing may have gone wrong."""
    settings = {"viewport": DESK, "locale": "en-US", "color_scheme": "light", **options}
    context = await street.browser.new_context(**settings)
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    there = Visit(street, context, page)
    page.on("console", lambda said: there.errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: there.errors.append(str(error)))
    page.on("request", lambda request: there.requests.append(request.url))
    page.on("websocket", lambda socket: there.requests.append(socket.url.replace("ws:", "http:")))
    try:
        if signed_in:
            await page.goto(street.link(principal))
            await page.wait_for_selector("#question")
        yield there
        there.check()
    finally:
        await context.close()
