"""Every control of the page is where a finger or a mouse reaches it, on wide windows and on small phones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Page, expect

from tests.gateway.page.street import Street, visit
from tests.helpers.scripted_model import Say

pytestmark = pytest.mark.asyncio(loop_scope="module")

REACHABLE: Final = Path(__file__).with_name("reachable.js").read_text()
SIZES: Final = ((1280, 800), (768, 1024), (390, 780), (320, 568))
POST: Final = {"category": "request", "title": "Jam jars wanted", "body": "Up to twenty.", "tags": ["glass"]}


async def assert_reachable(page: Page, where: str) -> None:
    faults = await page.evaluate(REACHABLE)
    assert faults == [], where
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not await page.evaluate(wide), f"{where} is wider than its window"


@pytest.mark.req("PAGE-18")
@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_page_every_control_can_be_tapped(street: Street, width: int, height: int) -> None:
    question, answer = f"Do we need jars at {width}?", "> " * 19 + "deep\n\n" + "Done." * 90
    call = ("market_post", {**POST, "title": f"Jars at {width}"})
    street.model.turns[question] = [Say("I write.", (call,)), Say(answer)]
    small = {"width": width, "height": height}
    async with visit(street, viewport=small, has_touch=True, is_mobile=width < 700) as there:
        page = there.page
        await page.wait_for_selector("#tool-market_post", state="attached")
        await page.wait_for_selector("#corpus option[value=manuals]", state="attached")
        await assert_reachable(page, "ask")
        await page.tap("#tools")
        await assert_reachable(page, "tools")
        for box in await page.locator(".tools input").all():
            await box.tap()
        await expect(page.locator(".tools input:not(:checked)")).to_have_count(0)
        for box in await page.locator(".tools input").all():
            await box.tap()
        await page.tap("#tool-market_post")
        await page.tap("#tools")
        await page.fill("#question", question)
        await page.tap("#send")
        await page.wait_for_selector("dialog [data-choice]")
        await assert_reachable(page, "dialog")
        await page.tap("dialog [data-choice=edit]")
        await page.wait_for_selector("dialog .editor")
        await assert_reachable(page, "editor")
        await page.get_by_role("button", name="As JSON").tap()
        await assert_reachable(page, "editor of JSON")
        await page.get_by_role("button", name="Back").tap()
        await page.tap("dialog [data-choice=later]")
        await assert_reachable(page, "a card that waits")
        for section in ("waiting", "mesh", "market", "settings", "ask"):
            await page.tap(f"#nav-{section}")
            await page.wait_for_selector(f"#nav-{section}[aria-current=page]")
            closed = page.locator("main details:not([open]) > summary:visible")
            while await closed.count():
                await closed.first.tap()
            await assert_reachable(page, section)
        await page.get_by_role("button", name="Look and decide").tap()
        await page.tap("dialog [data-choice=deny]")
        await page.wait_for_selector(".answer[data-state=done] blockquote")
        right = await page.locator(".text > p").last.evaluate("one => one.getBoundingClientRect().right")
        assert right <= width, "what lies deep widens nothing else"


@pytest.mark.req("PAGE-18")
@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_page_sign_in_can_be_tapped(street: Street, width: int, height: int) -> None:
    async with visit(street, signed_in=False, viewport={"width": width, "height": height}) as there:
        there.allowed.append("401")
        await there.page.goto(street.url)
        await there.page.get_by_label("Link or code").wait_for()
        await assert_reachable(there.page, "signing in")
