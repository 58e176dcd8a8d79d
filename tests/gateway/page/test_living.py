"""The rest of the page in a browser: market, mesh, settings, keyboard, phone, contrast, and bad input."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from playwright.async_api import Locator, Page, expect

from hearthnet import Call, Offer, Reply, Service, capability
from hearthnet.agent.loop.state import Limits
from hearthnet.core.ids import new_ulid
from tests.gateway.page.street import PHONE, Street, Visit, visit
from tests.helpers.probe import Anything
from tests.helpers.scripted_model import Say

pytestmark = pytest.mark.asyncio(loop_scope="module")

POST: Final = {"category": "request", "title": "Jam jars wanted", "body": "Up to twenty."}
EVIL: Final = '<img src=x onerror="window.hit = 1"><script>window.hit = 1</script>[x](javascript:alert(1))'
LATE: Final = "It is too late to approve this. Nothing was done."
SECTIONS: Final = ("ask", "waiting", "mesh", "market", "settings")


def offers(street: Street, question: str, *titles: str, last: str = "Done.") -> None:
    """Asked `question`, the model wants to post under each of `titles`."""
    calls = tuple(("market_post", {**POST, "title": title}) for title in titles)
    street.model.turns[question] = [Say("I write.", calls), Say(last)]


async def titles(street: Street) -> list[str]:
    return [one["title"] for one in await street.effects()]


async def go(page: Page, section: str) -> None:
    await page.click(f"#nav-{section}")
    await page.wait_for_selector(f"#nav-{section}[aria-current=page]")


# --- the market -------------------------------------------------------------------------------------------


async def write(there: Visit, title: str, body: str) -> None:
    page = there.page
    await go(page, "market")
    await page.get_by_text("Write a post").click()
    form = page.locator(".post-form")
    await form.get_by_label("Title").fill(title)
    await form.get_by_label("Text").fill(body)
    await form.get_by_label("Tags").fill("garden, tools")
    await form.get_by_role("button", name="Look at it and publish").click()
    await page.wait_for_selector("dialog [data-choice]")


@pytest.mark.req("PAGE-13")
async def test_a_post_is_seen_signed_and_found(street: Street) -> None:
    async with visit(street) as there:
        page = there.page
        await write(there, "Wheelbarrow to lend", "Green.\nOne wheel.")
        await expect(page.locator("dialog")).to_contain_text("Wheelbarrow to lend")
        await page.keyboard.press("Escape")
        assert "Wheelbarrow to lend" not in await titles(street)
        await page.get_by_role("button", name="Look at it and publish").click()
        await there.choose("approve")
        await expect(page.locator(".posts li").filter(has_text="Wheelbarrow to lend")).to_have_count(1)
        await there.picture("market")
        for query, found in (("wheelbarrow", 1), ("zeppelin", 0)):
            await page.get_by_label("Search the posts").fill(query)
            await page.get_by_role("button", name="Search", exact=True).click()
            await expect(page.locator("li[data-post]")).to_have_count(found)
        await page.get_by_role("button", name="Show all").click()
        await page.get_by_label("Kind").last.select_option("emergency")
        await expect(page.locator("li[data-post]")).to_have_count(0)
    assert (await titles(street)).count("Wheelbarrow to lend") == 1


@pytest.mark.req("MARKET-39", "PAGE-13")
async def test_an_author_is_muted_and_shown_again_on_the_page(street: Street) -> None:
    async with await street.mesh.bus("owner") as owner:
        text = {"client_id": new_ulid(), "category": "offer", "title": "Trumpet", "body": "Loud."}
        await owner.call("market.post@1.0", {"params": {}, "input": text})
    async with visit(street) as there, visit(street) as other:
        page = there.page
        for one in (page, other.page):
            await go(one, "market")
            await expect(one.locator("li[data-post]").filter(has_text="Trumpet")).to_have_count(1)
        trumpet = page.locator("li[data-post]").filter(has_text="Trumpet")
        await trumpet.get_by_role("button", name="Mute this author").click()
        await there.choose("approve")
        await expect(trumpet).to_have_count(0)
        await page.get_by_text("Authors you have muted: 1").click()
        await page.reload()
        await go(page, "market")
        await page.get_by_text("Authors you have muted: 1").click()
        await expect(trumpet).to_have_count(0)
        # It is this person's alone, though both pages follow one topic.
        await go(other.page, "mesh")
        await go(other.page, "market")
        await expect(other.page.locator("li[data-post]").filter(has_text="Trumpet")).to_have_count(1)
        await page.get_by_role("button", name="Show the posts again").click()
        await there.choose("approve")
        await expect(trumpet).to_have_count(1)
        await expect(page.locator("#muted")).to_be_hidden()


@pytest.mark.req("MARKET-35", "MARKET-36", "PAGE-13")
async def test_a_post_is_hidden_and_shown_again_on_the_page(street: Street) -> None:
    async with await street.mesh.guest_bus() as neighbour:
        text = {"client_id": new_ulid(), "category": "offer", "title": "Drum", "body": "Loud."}
        await neighbour.call("market.post@1.0", {"params": {}, "input": text})
    async with visit(street, principal="owner") as there, visit(street) as guest:
        page = there.page
        for one in (page, guest.page):
            await go(one, "market")
            await expect(one.locator("li[data-post]").filter(has_text="Drum")).to_have_count(1)
        assert await guest.page.get_by_text("Hide for everybody").count() == 0
        drum = page.locator("li[data-post]").filter(has_text="Drum")
        await drum.get_by_text("Hide for everybody").click()
        await drum.get_by_label("Why?").fill("At night, too.")
        await drum.get_by_role("button", name="Look at it and hide").click()
        await there.choose("approve")
        await expect(drum).to_have_count(0)
        for one in (page, guest.page):
            await one.get_by_text("Hidden posts").click()
            hidden = one.locator("li[data-hidden]")
            await expect(hidden).to_contain_text(re.compile(r"Drum.*hidden by.*: At night, too\."))
        await expect(guest.page.locator("li[data-post]").filter(has_text="Drum")).to_have_count(0)
        assert await guest.page.get_by_text("Show to everybody again").count() == 0
        await page.get_by_text("Show to everybody again").click()
        await hidden_form(page).get_by_label("Why?").fill("Only a toy.")
        await hidden_form(page).get_by_role("button").click()
        await there.choose("approve")
        await expect(drum).to_have_count(1)
        await expect(page.locator("li[data-hidden]")).to_have_count(0)


def hidden_form(page: Page) -> Any:
    """The form by which a hidden post is shown again."""
    return page.locator("li[data-hidden] form")


@pytest.mark.req("MARKET-46", "PAGE-13")
async def test_a_thing_is_lent_and_given_back_on_the_page(street: Street) -> None:
    async with visit(street) as author, visit(street) as borrower, visit(street) as other:
        await write(author, "Ladder to lend", "Three metres.")
        await author.choose("approve")
        offered, wanted, wished = (
            there.page.locator("li[data-post]").filter(has_text="Ladder to lend")
            for there in (author, borrower, other)
        )
        assert await offered.get_by_text("Ask to borrow it").count() == 0
        for there, ladder, note in ((borrower, wanted, "On Saturday."), (other, wished, "")):
            await go(there.page, "market")
            await ladder.get_by_text("Ask to borrow it").click()
            await ladder.get_by_label("When do you need it?").fill(note)
            await ladder.get_by_role("button", name="Look at it and ask").click()
            await there.choose("approve")
            await expect(ladder.get_by_role("button", name="Withdraw")).to_have_count(1)
        await expect(offered.locator("li[data-loan]")).to_have_count(2)
        asked = offered.locator("li[data-loan]").filter(has_text="On Saturday.")
        await press(author, asked, "Promise it")
        await expect(asked).to_contain_text("promised")
        # It is promised to one at a time, and each sees what was decided.
        await expect(offered.get_by_role("button", name="Promise it")).to_have_count(0)
        await expect(wanted.locator("li[data-loan]").filter(has_text="On Saturday.")).to_contain_text(
            "promised"
        )
        await press(author, offered.locator("li[data-loan]").filter(has_not_text="On Saturday."), "Refuse")
        await expect(wished).to_contain_text("refused")
        await press(author, asked, "It is handed over")
        await press(borrower, wanted, "I have given it back")
        await expect(asked).to_contain_text("given back, not confirmed")
        await press(author, asked, "It is back")
        for ladder in (offered, wanted):
            await expect(ladder.locator("li[data-loan]")).to_have_count(0)
        await expect(wanted.get_by_text("Ask to borrow it")).to_have_count(1)


async def press(there: Visit, within: Locator, name: str) -> None:
    """Take a step with a reservation, and say yes to it."""
    await within.get_by_role("button", name=name).click()
    await there.choose("approve")


@pytest.mark.req("PAGE-2", "PAGE-13")
async def test_a_post_that_the_gateway_changed_is_not_signed(street: Street) -> None:
    async with visit(street) as there:

        async def change(route: Any) -> None:
            answer = await route.fetch()
            found = await answer.json()
            if found.get("pending"):
                found["pending"][0]["body"]["input"]["body"] = "Call this number."
            await route.fulfill(response=answer, json=found)

        await there.page.route("**/v1/call", change)
        page = there.page
        await go(page, "market")
        await page.get_by_text("Write a post").click()
        await page.locator(".post-form").get_by_label("Title").fill("Cat lost")
        await page.locator(".post-form").get_by_label("Text").fill("Grey.")
        await page.get_by_role("button", name="Look at it and publish").click()
        await expect(page.locator(".column > .error")).to_contain_text("(edited body)")
        assert await page.locator("dialog").count() == 0
    assert "Cat lost" not in await titles(street)


# --- what others wrote ------------------------------------------------------------------------------------


@pytest.mark.req("PAGE-3", "PAGE-9")
async def test_what_others_wrote_is_text_wherever_it_stands(street: Street) -> None:
    street.library.text = street.library.title = EVIL
    look = Say(EVIL, (("search_corpus", {"query": EVIL}),))
    street.model.turns["Look"] = [look, Say(f"{EVIL} that is **all**")]
    async with visit(street) as there:
        page = there.page
        await write(there, EVIL, EVIL)
        await expect(page.locator("dialog .body")).to_contain_text("<script>")
        await there.choose("approve")
        await expect(page.locator(".posts h3").filter(has_text="<img src=x")).to_have_count(1)
        await go(page, "ask")
        await page.wait_for_selector("#corpus option[value=manuals]", state="attached")
        await there.ask("Look", corpus="manuals")
        await there.answered("that is")
        for fold in await page.locator(".answer summary").all():
            await fold.click()
        await expect(page.locator(".sources")).to_contain_text("<script>")
        assert await page.locator("main img, main script, main iframe, .answer a").count() == 0
        assert await page.evaluate("window.hit") is None
    street.library.text, street.library.title = "Boil water for three minutes.", "Boiling water"


@pytest.mark.req("PAGE-9")
async def test_the_browser_itself_refuses_markup_from_text_and_other_places(street: Street) -> None:
    async with visit(street) as there:
        there.allowed += ["Trusted", "Content Security Policy", "Refused to"]
        page = there.page
        refused = "(act) => { try { act(); return 'done' } catch (error) { return error.name } }"
        assert await page.evaluate(f"({refused})(() => {{ live.innerHTML = '<b>x</b>' }})") == "TypeError"
        script = "document.createElement('script').text = '1'"
        assert await page.evaluate(f"({refused})(() => {{ {script} }})") == "TypeError"
        away = "fetch('http://127.0.0.1:9/').then(() => 'went', (error) => error.name)"
        assert await page.evaluate(away) == "TypeError"
        there.requests.clear()


# --- the mesh ---------------------------------------------------------------------------------------------


class Shelf(Service):
    """Offers what nobody else on the street offers."""

    name: ClassVar[str] = "shelf"

    def offers(self) -> list[Offer]:
        """One."""
        return [Offer(capability="file.list@1.0")]

    @capability("file.list@1.0")
    async def list(self, call: Call[Anything, Anything]) -> Reply:
        """Nothing."""
        return Reply({"files": [], "total": 0}, {})


@pytest.mark.req("PAGE-14")
async def test_the_picture_and_the_table_follow_the_mesh(street: Street) -> None:
    async with visit(street) as there:
        page = there.page
        await go(page, "mesh")
        own = page.locator("svg .node.own")
        await expect(own.locator("[data-family=market]")).to_have_count(1)
        await expect(page.locator("svg .node.away")).to_have_count(1)
        assert await own.locator("[data-family=file]").count() == 0
        async with street.mesh.hosting(Shelf()):
            await expect(own.locator("[data-family=file]")).to_have_count(1)
            await expect(page.locator("tbody")).to_contain_text("file.list@1.0")
            await there.picture("mesh")
        await expect(own.locator("[data-family=file]")).to_have_count(0)
        await expect(page.locator("tbody")).not_to_contain_text("file.list@1.0")
        label = await page.locator("svg[role=img]").get_attribute("aria-label")
        assert re.fullmatch(r"Picture of the mesh: 2 nodes, \d+ capabilities", label or "")
        heads = await page.locator("thead th").all_inner_texts()
        assert heads == ["Node", "Capability", "Details", "Health"]


# --- several people, and time -----------------------------------------------------------------------------


@pytest.mark.req("PAGE-12", "PAIN-8")
async def test_pending_calls_are_decided_each_on_its_own_from_two_windows(street: Street) -> None:
    offers(street, "Post three", "First", "Second", "Third")
    async with visit(street, principal="pair") as one, visit(street, principal="pair") as other:
        await one.ask("Post three", "market_post")
        await one.page.wait_for_selector("dialog [data-choice]")
        await go(other.page, "waiting")
        run = other.page.locator(".runs .card")
        await expect(run.get_by_role("button", name="Look and decide")).to_have_count(3)
        await run.get_by_role("button", name="Look and decide").nth(1).click()
        await expect(other.page.locator("dialog")).to_contain_text("Second")
        await other.choose("deny")
        await one.card("denied", 1)
        await one.choose("approve")
        await one.page.wait_for_selector("dialog [data-choice]")
        await expect(one.page.locator("dialog")).to_contain_text("Third")
        await one.choose("approve")
        await one.answered("Done.")
        for nth, status in enumerate(("completed", "denied", "completed")):
            await one.card(status, nth)
        await expect(other.page.locator(".runs .card")).to_have_count(0)
    posted = await titles(street)
    assert [posted.count(title) for title in ("First", "Second", "Third")] == [1, 0, 1]


@pytest.mark.req("PAGE-12", "PAIN-8")
async def test_a_second_decision_about_a_call_changes_nothing(street: Street) -> None:
    offers(street, "Post it", "Decided twice")
    async with visit(street, principal="twice") as one, visit(street, principal="twice") as other:
        await one.ask("Post it", "market_post")
        await one.page.wait_for_selector("dialog [data-choice]")
        await go(other.page, "waiting")
        await other.page.get_by_role("button", name="Look and decide").click()
        await other.choose("deny")
        await one.card("denied")
        await one.choose("approve")
        await expect(one.page.locator("#live")).to_contain_text("decided already")
        await one.answered("Done.")
    assert "Decided twice" not in await titles(street)


@pytest.mark.req("PAGE-11", "PAIN-19")
async def test_a_yes_that_comes_too_late_is_refused_and_says_so(street: Street) -> None:
    offers(street, "Post late", "Too late")
    assert street.gateway is not None
    runs = street.gateway.runs
    before = runs._limits
    runs._limits = Limits(confirmation_ttl_ms=6_000)
    try:
        async with visit(street) as there:
            there.allowed.append("Failed to load resource")
            await there.ask("Post late", "market_post")
            await there.page.wait_for_selector("dialog [data-choice]")
            await there.card("expired")
            await there.choose("approve")
            await expect(there.page.locator("dialog .error")).to_have_text(LATE)
            await there.page.keyboard.press("Escape")
            await there.answered("Done.")
    finally:
        runs._limits = before
    assert "Too late" not in await titles(street)


# --- signing in and settings ------------------------------------------------------------------------------


@pytest.mark.req("PAGE-15")
async def test_the_key_stays_in_the_browser_and_a_link_works_once(street: Street) -> None:
    link = street.link()
    async with visit(street, signed_in=False) as there:
        page = there.page
        await page.goto(street.url)
        await expect(page.get_by_role("heading", name="Open your HearthNet")).to_be_visible()
        await page.get_by_label("Link or code").fill(link)
        await page.get_by_role("button", name="Open").click()
        await page.wait_for_selector("#question")
        assert "code" not in page.url
        key = (
            "new Promise((found) => { const open = indexedDB.open('hearthnet', 1); open.onsuccess = () => {"
            " open.result.transaction('keys').objectStore('keys').get('own').onsuccess ="
            " (event) => found(event.target.result) } })"
        )
        said = await page.evaluate(
            f"{key}.then((key) => crypto.subtle.exportKey('pkcs8', key.secret)).catch((e) => e.name)"
        )
        assert said == "InvalidAccessError"
        await page.reload()
        await page.wait_for_selector("#question")
    async with visit(street, signed_in=False) as there:
        there.allowed.append("401")
        await there.page.goto(link)
        await expect(there.page.locator(".error")).to_contain_text("used already")


@pytest.mark.req("PAGE-15")
async def test_language_and_appearance_are_chosen_and_signing_out_forgets_all(street: Street) -> None:
    street.model.turns["Wer bist du?"] = [Say("Ein **Modell**.")]
    async with visit(street, locale="de-DE", color_scheme="dark") as there:
        there.allowed.append("401")
        page = there.page
        assert await page.get_attribute("html", "lang") == "de"
        await there.ask("Wer bist du?")
        await there.answered("Modell")
        await there.picture("dark")
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = await page.evaluate(ground)
        await go(page, "settings")
        await expect(page.locator("h1")).to_have_text("Einstellungen")
        await page.select_option("#theme", "light")
        assert await page.evaluate(ground) != dark
        await page.select_option("#language", "en")
        await expect(page.locator("h1")).to_have_text("Settings")
        await page.reload()
        await expect(page.locator("h1")).to_have_text("Settings")
        assert await page.evaluate(ground) != dark
        await page.click("#sign-out")
        await expect(page.get_by_role("heading", name="Open your HearthNet")).to_be_visible()
        assert (await there.context.request.get(f"{street.url}/v1/me")).status == 401
        await page.goto(street.link())
        await page.wait_for_selector("#question")
        assert await page.locator(".names li").count() == 0


# --- for everybody ----------------------------------------------------------------------------------------


@pytest.mark.req("PAGE-16")
async def test_everything_can_be_done_with_the_keyboard(street: Street) -> None:
    offers(street, "Keys", "By keyboard")
    async with visit(street) as there:
        page = there.page
        await page.evaluate("localStorage.setItem('hearthnet.tools', '[\"market_post\"]')")
        await page.reload()
        await page.wait_for_selector("#tool-market_post", state="attached")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.id") == "skip"
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
        await tab_to(page, "question")
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
        await page.keyboard.type("Keys")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog [data-choice]")
        seen = []
        for _ in range(14):
            assert await page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
            seen.append(await page.evaluate("document.activeElement.dataset.choice ?? ''"))
            await page.keyboard.press("Tab")
        assert {"approve", "edit", "deny", "later"} <= set(seen)
        assert seen.count("approve") > 1
        await page.keyboard.press("Escape")
        assert await page.locator("dialog").count() == 0
        assert await page.evaluate("document.activeElement.id") == "question"
        await tab_to(page, "", "call_market_post_0", back=True)
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog [data-choice]")
        while await page.evaluate("document.activeElement.dataset.choice") != "approve":
            await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await there.answered("Done.")
    assert "By keyboard" in await titles(street)


async def tab_to(page: Page, name: str, call: str = "", *, back: bool = False) -> None:
    """Presses the tab key until the element with this id, or the button of this call, has the focus."""
    for _ in range(40):
        await page.keyboard.press("Shift+Tab" if back else "Tab")
        here = await page.evaluate("[document.activeElement.id, document.activeElement.dataset.decide ?? '']")
        if (name and here[0] == name) or (call and here[1]):
            return
    pytest.fail(f"the tab key does not lead to {name or call}")


@pytest.mark.req("PAGE-16")
async def test_it_fits_a_phone(street: Street) -> None:
    offers(street, "Small", "On a small screen")
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    async with visit(street, viewport=PHONE, has_touch=True, is_mobile=True) as there:
        page = there.page
        for section in SECTIONS:
            await go(page, section)
            assert not await page.evaluate(wide), section
        await go(page, "ask")
        await page.wait_for_selector("#tool-market_post", state="attached")
        await there.ask("Small", "market_post")
        await page.wait_for_selector("dialog [data-choice]")
        for choice in ("approve", "edit", "deny", "later"):
            button = page.locator(f"dialog [data-choice={choice}]")
            await button.scroll_into_view_if_needed()
            box = await button.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]
            assert box["height"] >= 40
        await page.locator("dialog h2").scroll_into_view_if_needed()
        await there.picture("phone")
        await there.choose("approve")
        await there.answered("Done.")
        assert not await page.evaluate(wide)


LEGIBLE: Final = Path(__file__).with_name("legible.js").read_text()


@pytest.mark.req("PAGE-16")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_text_has_contrast_and_all_controls_have_names(street: Street, scheme: Any) -> None:
    question = f"Contrast {scheme}"
    offers(street, question, f"In {scheme}")
    async with visit(street, color_scheme=scheme, reduced_motion="reduce") as there:
        page = there.page
        await page.wait_for_selector("#tool-market_post", state="attached")
        await there.ask(question, "market_post")
        await page.wait_for_selector("dialog [data-choice]")
        assert await page.evaluate(LEGIBLE) == []
        moving = "document.getAnimations().filter((one) => one.playState === 'running').length"
        assert await page.evaluate(moving) == 0
        await there.choose("edit")
        assert await page.evaluate(LEGIBLE) == []
        await page.keyboard.press("Escape")
        for section in SECTIONS:
            await go(page, section)
            assert await page.evaluate(LEGIBLE) == [], section
            assert await page.locator("h1").count() == 1
            assert await page.locator("main").count() == 1
            assert await page.locator("nav[aria-label]").count() >= 1


@pytest.mark.req("PAGE-10")
async def test_stopping_ends_an_answer(street: Street) -> None:
    street.model.turns["Forever"] = [Say(forever=True)]
    async with visit(street) as there:
        page = there.page
        await there.ask("Forever")
        await expect(page.locator(".answer .text")).to_contain_text("on on on")
        await page.click("#stop")
        await expect(page.locator(".answer .state")).to_have_text("Stopped.")
        await expect(page.locator("#send")).to_be_enabled()
        said = await page.locator(".answer .text").inner_text()
        assert set(said.split()) == {"on"}
