"""Asking in a browser: answers, cards, the question before an effect, breaks and restarts."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final

import pytest
from playwright.async_api import WebSocketRoute, expect

from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.trust.keys import Identity
from tests.gateway.page.street import Street, Visit, visit
from tests.helpers.scripted_model import Say
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")

POST: Final = {
    "category": "offer",
    "title": "Ladder to lend",
    "body": "Four metres, aluminium.\nRing twice.",
    "tags": ["tools"],
}
STORY: Final = " ".join(f"word{number}" for number in range(90))


def offers(street: Street, question: str, title: str, *, last: str = "It is posted.") -> None:
    """Asked `question`, the model wants to post under `title`."""
    call = ("market_post", {**POST, "title": title})
    street.model.turns[question] = [Say("I write the post.", (call,)), Say(last)]


async def titles(street: Street) -> list[str]:
    return [one["title"] for one in await street.effects()]


async def dialog(there: Visit) -> None:
    await there.page.wait_for_selector("dialog [data-choice]")


# --- answers ----------------------------------------------------------------------------------------------


@pytest.mark.req("PAGE-10")
async def test_an_answer_comes_with_its_cards_and_sources(street: Street) -> None:
    question = "How do I make water safe?"
    street.model.turns[question] = [
        Say("I look it up.", (("search_corpus", {"query": "boil water"}),)),
        Say("**Boil** it for three minutes.\n\n- Let it cool\n- Keep it `covered`"),
    ]
    async with visit(street) as there:
        page = there.page
        await page.evaluate(
            "() => { window.said = []; new MutationObserver(() => window.said.push(live.textContent))"
            ".observe(live, {childList: true}) }"
        )
        await page.wait_for_selector("#corpus option[value=manuals]", state="attached")
        await there.ask(question, corpus="manuals")
        await there.answered("for three minutes")
        await there.card("completed")
        card = page.locator(".answer .card")
        await expect(card.locator("h4")).to_have_text("search_corpus")
        await expect(card.locator(".time")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
        await card.get_by_text("Arguments").click()
        await expect(card).to_contain_text("boil water")
        await card.get_by_text("Result").click()
        await expect(card).to_contain_text("Boil water for three minutes.")
        await card.get_by_text("Arguments").click()
        await card.get_by_text("Result").click()
        assert await page.locator(".answer strong").inner_text() == "Boil"
        assert await page.locator(".answer .text li").all_inner_texts() == ["Let it cool", "Keep it covered"]
        sources = await page.locator(".sources").inner_text()
        assert "Boiling water" in sources
        assert "Field guide, p. 12" in sources
        await there.picture("ask")
        said = [one for one in await page.evaluate("window.said") if one]
        assert said[-1].startswith("The answer is complete: I look it up.")
        assert len(said) < 8
    asked = street.model.requests[-2]
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "search_corpus"}}


@pytest.mark.req("ATTACK-47", "PAGE-10")
async def test_what_happened_stands_under_the_answer_of_a_model_that_lies(street: Street) -> None:
    street.model.turns["Did you post it?"] = [Say("I posted it: done, signed by 01JZZZZZZZZZZZZZZZZZZZZZ99.")]
    offers(street, "Post it then", "Kettle to lend", last="I did nothing at all.")
    async with visit(street) as there:
        happened = there.page.locator(".answer .happened li")
        await there.ask("Did you post it?")
        await there.answered("signed by 01JZZZ")
        await expect(happened).to_have_text("nothing")
        await there.ask("Post it then", "market_post")
        await dialog(there)
        await there.page.click("[data-choice=approve]")
        await there.answered("I did nothing at all.")
        await expect(happened.last).to_have_attribute("data-happened", "done")
        await expect(happened.last).to_contain_text("market.post@1.0")
    assert (await titles(street)).count("Kettle to lend") == 1


@pytest.mark.req("ATTACK-44", "PAGE-3")
async def test_approve_is_enabled_once_the_end_was_in_view(street: Street) -> None:
    body = "harmless\u202e" + "\n" * 40 + " ".join(["word"] * 400) + "e" + "\u0301" * 30 + "  pay 500  "
    call = ("market_post", {**POST, "title": "Long", "body": body})
    street.model.turns["Post a long one"] = [Say("I post it.", (call,)), Say("It is posted.")]
    async with visit(street) as there:
        await there.page.set_viewport_size({"width": 800, "height": 500})
        await there.ask("Post a long one", "market_post")
        await dialog(there)
        approve, box = there.page.locator("[data-choice=approve]"), there.page.locator("dialog .body")
        await expect(approve).to_be_disabled()
        shown = await box.inner_text()
        for drawn in ("U+202E", "↵\u00d740", "U+0301\u00d726", "U+0020\u00d72"):
            assert drawn in shown
        await box.evaluate("box => box.scrollIntoView({block: 'start'})")
        await expect(approve).to_be_disabled()
        await there.page.locator("dialog .facts").evaluate("facts => facts.scrollIntoView({block: 'center'})")
        await expect(approve).to_be_enabled()
        await there.page.click("[data-choice=deny]")
        await expect(there.page.locator(".happened li")).to_have_attribute("data-happened", "refused")


@pytest.mark.req("ATTACK-47", "PAGE-10")
async def test_an_answer_that_goes_on_shows_what_happened_since(street: Street) -> None:
    """Also where all of it comes before the next frame of the screen."""
    async with visit(street) as there:
        found = await there.page.evaluate(GOES_ON)
    assert found == [["waiting"], ["done"], 0]


GOES_ON: Final = """async () => {
  const base = document.querySelector("link[rel=modulepreload]").href.replace(/(lib\\/)?[^/]*$/, "");
  const { AnswerView } = await import(base + "answer_view.js");
  const { apply, blank, reopen } = await import(base + "lib/answer.js");
  const { Prose } = await import(base + "prose.js");
  const answer = blank();
  const view = new AnswerView({ id: "q", question: "Post it", answer }, {});
  const happened = (state) => [{ state, capability: "market.post@1.0" }];
  const seen = () => [...view.root.querySelectorAll("[data-happened]")].map((one) => one.dataset.happened);
  apply(answer, { event: "suspended", data: { run: "r", pending: [], happened: happened("waiting") } });
  view.draw();
  const before = seen();
  reopen(answer);
  apply(answer, { event: "done", data: { run: "r", stop_reason: "end", happened: happened("done") } });
  view.draw();
  const prose = new Prose();
  prose.update("x".repeat(40000), false);
  prose.update("Anew.", true);
  return [before, seen(), prose.root.querySelectorAll(".more").length];
}"""


def deep(levels: int) -> dict[str, Any]:
    """A value inside so many others."""
    return {"in": deep(levels - 1)} if levels else {"last": "PAY 9000"}


@pytest.mark.req("ATTACK-44", "PAGE-3")
@pytest.mark.parametrize(
    ("width", "height", "sent", "at_once"),
    [
        (1080, 720, POST, True),
        (640, 360, {"to": "me", "last": "PAY 9000"}, False),
        (390, 664, {"note": "x" * 900, "last": "PAY 9000"}, False),
        (1080, 720, deep(28), False),
        (390, 664, {"n" * 400: 1, "last": "PAY 9000"}, False),
        (1080, 720, {f"n{number}": ["\u05d0"] * 9 for number in range(2_000)}, False),
    ],
)
async def test_end_of_a_call_is_in_view_before_it_can_be_approved(
    street: Street, width: int, height: int, sent: dict[str, Any], at_once: bool
) -> None:
    """Nothing covers it, and nothing is beside what is seen; whoever sees all of it need not scroll."""
    async with visit(street) as there:
        page = there.page
        await page.set_viewport_size({"width": width, "height": height})
        await page.evaluate(ASKS, sent)
        hint, facts = page.locator("dialog .sheet-body > .hint"), page.locator("dialog .facts")
        await expect(hint).to_have_count(1)
        await page.evaluate("() => new Promise((drawn) => setTimeout(drawn, 300))")
        await expect(hint).to_be_hidden() if at_once else await expect(hint).to_be_visible()
        await facts.evaluate("facts => facts.scrollIntoView({block: 'end'})")
        await facts.evaluate("facts => facts.scrollIntoView({block: 'center'})")
        await expect(hint).to_be_hidden()
        assert await page.locator("dialog .body *").count() < 2_000
        last = page.locator("dialog .body").get_by_text("PAY 9000")
        if await last.count():
            await expect(last).to_be_in_viewport()


ASKS: Final = """async (input) => {
  const base = document.querySelector("link[rel=modulepreload]").href.replace(/(lib\\/)?[^/]*$/, "");
  const { confirm } = await import(base + "confirm.js");
  const body = { params: {}, input };
  confirm({ name: "shop", capability: "experimental.shop.order@1.0", body, arguments: input }, {});
}"""


HOSTILE: Final = {
    "lists": "- " * 9 + "x\n",
    "quotes": "> " * 15 + "x\n",
    "ticks": "`" * 7 + "x`` ",
    "emphasis": "*a **b _c ",
    "links": "[a](b![c](",
    "table": "| a | b |\n|---|---|\n| c | d |\n",
    "letters": "x",
    "marks": "e" + "\u0301" * 20,
}


@pytest.mark.req("ATTACK-44", "PAGE-10")
async def test_hostile_texts_are_drawn_in_part_and_in_linear_time(street: Street) -> None:
    """80,000 characters take less than three times as long as 40,000, in the same browser."""
    async with visit(street) as there:
        draws = await there.page.evaluate(DRAWS, HOSTILE)
        for name, (half, whole, longest, drawn) in draws.items():
            assert whole < 3 * half + 60, (name, half, whole)
            assert longest < 3_000, (name, longest)
            assert drawn <= 16_384, (name, drawn)


DRAWS: Final = """async (texts) => {
  const base = document.querySelector("link[rel=modulepreload]").href.replace(/(lib\\/)?[^/]*$/, "");
  const { Prose } = await import(base + "prose.js");
  const found = {};
  for (const [name, unit] of Object.entries(texts)) {
    const times = [];
    let longest = 0, drawn = 0;
    for (const size of [40000, 80000, 40000, 80000, 40000, 80000]) {
      const text = unit.repeat(Math.ceil(size / unit.length)).slice(0, size);
      const prose = new Prose();
      document.getElementById("main").append(prose.root);
      let sum = 0;
      const draw = (upto, over) => {
        const began = performance.now();
        prose.update(text.slice(0, upto), over);
        prose.root.getBoundingClientRect();
        const took = performance.now() - began;
        sum += took;
        longest = Math.max(longest, took);
      };
      for (let upto = 1000; upto <= size; upto += 1000) draw(upto, false);
      draw(size, true);
      await new Promise((resolve) => setTimeout(resolve, 300));
      drawn = prose.box.textContent.length;
      const began = performance.now();
      prose.root.querySelector(".more button").click();
      prose.root.getBoundingClientRect();
      longest = Math.max(longest, performance.now() - began);
      prose.root.remove();
      times.push(sum);
    }
    found[name] = [Math.min(times[2], times[4]), Math.min(times[3], times[5]), longest, drawn];
  }
  return found;
}"""


@pytest.mark.req("PAGE-10")
async def test_conversations_are_kept_and_the_next_question_has_its_history(street: Street) -> None:
    street.model.turns |= {"Who are you?": [Say("A model.")], "Since when?": [Say("Since today.")]}
    async with visit(street) as there:
        page = there.page
        await there.ask("Who are you?")
        await there.answered("A model.")
        await there.ask("Since when?")
        await there.answered("Since today.")
        said = [(one["role"], one["content"].strip()) for one in street.model.requests[-1]["messages"]]
        assert said == [("user", "Who are you?"), ("assistant", "A model."), ("user", "Since when?")]
        await page.get_by_role("button", name="New conversation", exact=True).click()
        assert await page.locator(".answer").count() == 0
        await page.reload()
        await page.get_by_role("button", name="Who are you?", exact=True).click()
        assert await page.locator(".question").all_inner_texts() == ["Who are you?", "Since when?"]
        await page.get_by_role("button", name="Delete this conversation: Who are you?").click()
        await expect(page.locator(".names li")).to_have_count(0)


@pytest.mark.req("PAGE-17")
async def test_while_a_question_is_typed_the_model_reads_what_it_will_follow(street: Street) -> None:
    street.model.turns |= {"Who was first?": [Say("Ada.")], "And then?": [Say("Grace.")]}
    already = len(street.model.readied)

    def read() -> list[tuple[list[str], list[str]]]:
        return [
            (
                [one["content"].strip() for one in request["messages"]],
                [tool["function"]["name"] for tool in request.get("tools", [])],
            )
            for request in street.model.readied[already:]
        ]

    async with visit(street) as there:
        page = there.page
        await page.wait_for_selector("#tool-market_post", state="attached")
        await page.click("#tools")
        await page.check("#tool-market_post")
        await page.type("#question", "Who was first?")
        await wait_for(read)
        await page.press("#question", "Enter")
        await there.answered("Ada.")
        await page.type("#question", "And then?")
        await wait_for(lambda: len(read()) > 1)
        await page.press("#question", "Enter")
        await there.answered("Grace.")
    tools = ["market_post"]
    assert read() == [([""], tools), (["Who was first?", "Ada.", ""], tools)]


@pytest.mark.req("PAGE-10", "PAIN-21")
async def test_ten_steps_of_a_tool_are_seen_before_its_result(street: Street) -> None:
    street.model.turns["Take ten steps"] = [
        Say("", (("llm_complete", {"prompt": "go", "model": "steps"}),)),
        Say("Done."),
    ]
    street.library.go.clear()
    async with visit(street) as there:
        await there.page.evaluate("localStorage.setItem('hearthnet.tools', '[\"llm.complete\"]')")
        await there.page.reload()
        await there.page.wait_for_selector('[id="tool-llm.complete"]', state="attached")
        await there.page.evaluate(
            "() => { window.steps = []; const look = () => { const stage = document.querySelector('.stage');"
            " if (stage?.textContent) window.steps.push(stage.textContent) };"
            " new MutationObserver(look).observe(main, {childList: true, subtree: true}) }"
        )
        await there.ask("Take ten steps")
        stage = there.page.locator(".answer .card .stage")
        await expect(stage).to_have_text("reading: 9 of 10")
        await there.card("running")
        street.library.go.set()
        await there.answered("Done.")
        await there.card("completed")
        steps = list(dict.fromkeys(await there.page.evaluate("window.steps")))
        assert steps == [f"reading: {number} of 10" for number in range(1, 11)]
    assert "reading" not in json.dumps(street.model.requests[-1]["messages"])


@pytest.mark.req("PAGE-10", "PAIN-13")
async def test_stopping_reaches_the_tool_and_the_model_is_not_asked_again(street: Street) -> None:
    street.model.turns["Walk no further"] = [
        Say("", (("llm_complete", {"prompt": "go", "model": "steps"}),)),
        Say("Never said."),
    ]
    street.library.go.clear()
    street.library.stopped.clear()
    async with visit(street) as there:
        await there.page.evaluate("localStorage.setItem('hearthnet.tools', '[\"llm.complete\"]')")
        await there.page.reload()
        await there.page.wait_for_selector('[id="tool-llm.complete"]', state="attached")
        await there.ask("Walk no further")
        await expect(there.page.locator(".answer .card .stage")).to_have_text("reading: 9 of 10")
        asked_before = len(street.model.requests)
        await there.page.click("#stop")
        await there.card("cancelled")
        await expect(there.page.locator(".answer .state")).to_have_text("Stopped.")
        await wait_for(lambda: street.library.stopped, 30.0)
        assert len(street.model.requests) == asked_before
    street.library.go.set()


@pytest.mark.req("PAGE-6", "PAGE-10")
async def test_an_answer_goes_on_in_the_window_that_was_opened_last(street: Street) -> None:
    street.model.turns["Walk"] = [
        Say("", (("llm_complete", {"prompt": "go", "model": "steps"}),)),
        Say("There."),
    ]
    street.library.go.clear()
    async with visit(street) as there:
        await there.page.evaluate("localStorage.setItem('hearthnet.tools', '[\"llm.complete\"]')")
        await there.page.reload()
        await there.page.wait_for_selector('[id="tool-llm.complete"]', state="attached")
        await there.ask("Walk")
        await there.card("running")
        second = await there.context.new_page()
        await second.goto(f"{street.url}/#ask")
        await expect(there.page.locator(".answer .state")).to_contain_text("in another window")
        await expect(second.locator(".answer .stage")).to_have_text("reading: 9 of 10")
        street.library.go.set()
        await expect(second.locator(".answer .text").last).to_have_text("There.")
        await there.page.reload()
        await there.answered("There.")


# --- the question before an effect ------------------------------------------------------------------------


@pytest.mark.req("PAGE-11")
async def test_an_effect_happens_once_it_was_seen_and_approved(street: Street) -> None:
    offers(street, "Lend my ladder", "Ladder to lend")
    async with visit(street) as there:
        page = there.page
        await there.ask("Lend my ladder", "market_post")
        await dialog(there)
        rows = dict(
            zip(
                await page.locator("dialog .json .json dt").all_inner_texts(),
                await page.locator("dialog .json .json > div > dd").all_inner_texts(),
                strict=False,
            )
        )
        assert rows["title"] == "Ladder to lend"
        assert "Ring twice." in rows["body"]
        assert len(rows["client_id"]) == 26
        body = {"params": {}, "input": {**POST, "client_id": rows["client_id"]}}
        assert await page.locator("dialog .digest").inner_text() == digest(body)
        await there.picture("confirm")
        assert "Ladder to lend" not in await titles(street)
        await there.choose("approve")
        await there.answered("It is posted.")
        await there.card("completed")
    assert (await titles(street)).count("Ladder to lend") == 1


@pytest.mark.req("PAGE-11")
async def test_a_no_is_told_to_the_model_with_its_reason_and_nothing_happens(street: Street) -> None:
    offers(street, "Lend my saw", "Saw to lend", last="Then not.")
    async with visit(street) as there:
        await there.ask("Lend my saw", "market_post")
        await dialog(there)
        await there.page.get_by_label("Reason for refusing").fill("It is blunt.")
        await there.choose("deny")
        await there.answered("Then not.")
        await there.card("denied")
    assert "It is blunt." in json.dumps(street.model.requests[-1]["messages"])
    assert "Saw to lend" not in await titles(street)


@pytest.mark.req("PAGE-11")
async def test_a_changed_call_is_shown_again_before_it_is_signed(street: Street) -> None:
    offers(street, "Lend my drill", "Drill to lend")
    async with visit(street) as there:
        page = there.page
        await there.ask("Lend my drill", "market_post")
        await dialog(there)
        first = await page.locator("dialog .digest").inner_text()
        await there.choose("edit")
        await page.get_by_label("title").fill("Drill, only on Sundays")
        await page.get_by_label("ttl_seconds").fill("soon")
        await page.get_by_role("button", name="Show the changed call").click()
        await expect(page.locator("dialog .editor .error")).to_have_text("ttl_seconds must be a number.")
        await page.get_by_label("ttl_seconds").fill("90000")
        await page.get_by_role("button", name="Show the changed call").click()
        await dialog(there)
        assert await page.locator("dialog .digest").inner_text() != first
        changed = await page.locator("dialog .changed").all_inner_texts()
        assert [one.split("\n")[-1] for one in changed] == ["Drill, only on Sundays", "90000"]
        await there.choose("approve")
        await there.answered("It is posted.")
    assert "Drill, only on Sundays" in await titles(street)
    assert "Drill to lend" not in await titles(street)


@pytest.mark.req("PAGE-11")
async def test_changes_can_be_written_as_json_and_wrong_ones_are_explained(street: Street) -> None:
    offers(street, "Lend my rake", "Rake to lend")
    async with visit(street) as there:
        page = there.page
        await there.ask("Lend my rake", "market_post")
        await dialog(there)
        await there.choose("edit")
        await page.get_by_role("button", name="As JSON").click()
        area = page.get_by_label("Arguments (JSON)")
        assert json.loads(await area.input_value()) == {**POST, "title": "Rake to lend"}
        for wrong, why in (
            ("{", "JSON is no valid JSON."),
            (json.dumps({**POST, "category": "gossip"}), "category"),
        ):
            await area.fill(wrong)
            await page.get_by_role("button", name="Show the changed call").click()
            await expect(page.locator("dialog .error:not(:empty)")).to_contain_text(why)
        there.allowed.append("400")
        await page.get_by_role("button", name="Back").click()
        await there.choose("deny")
        await there.card("denied")


@pytest.mark.req("PAGE-3", "PAGE-11")
async def test_what_is_hidden_in_a_call_is_seen(street: Street) -> None:
    offers(street, "Lend my hat", "Hat \u202egnp.exe\u200b", last="Well.")
    async with visit(street) as there:
        await there.ask("Lend my hat", "market_post")
        await dialog(there)
        body = there.page.locator("dialog .body")
        await expect(body).to_contain_text("U+202E")
        await expect(body).to_contain_text("U+200B")
        await expect(there.page.locator("dialog .warning")).to_contain_text("hidden characters")
        await there.choose("deny")
        await there.answered("Well.")


# --- lies -------------------------------------------------------------------------------------------------


async def lying(there: Visit, lie: Any) -> None:
    """From now on every question that comes over the socket is what `lie` makes of it."""

    def connect(route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def heard(message: str | bytes) -> None:
            frame = json.loads(message)
            if frame["event"] == "confirmation_required":
                lie(frame["data"])
            route.send(json.dumps(frame))

        server.on_message(heard)

    await there.page.route_web_socket(re.compile("/v1/socket"), connect)
    await there.page.reload()
    await there.page.wait_for_selector("#question")


@pytest.mark.req("PAGE-11", "TOOL-90")
@pytest.mark.parametrize(
    ("home", "same"),
    [
        ("this node (ed25519:AAAA-BBBB-CCCC-DDDD)", True),
        ("", True),
        ("the home of another (ed25519:AAAA-BBBB-CCCC-DDDD)", False),
    ],
)
async def test_home_of_an_effect_is_shown_with_its_id(street: Street, home: str, same: bool) -> None:
    """A neighbour's home may have any name: that of another, or "this node". A name that is given for another
    node than the one that the approval is for is not shown.
    """
    node = Identity.generate().node_id
    question = f"Lend my rake {len(home)}"
    offers(street, question, "Rake to lend", last="Well.")

    def elsewhere(asked: dict[str, Any]) -> None:
        asked["provider"], asked["home"] = node if same else Identity.generate().node_id, home
        asked["approval"]["provider"] = node

    async with visit(street) as there:
        await lying(there, elsewhere)
        await there.ask(question, "market_post")
        await dialog(there)
        fact = there.page.locator("dialog .facts > div").filter(has_text="Sent to another home").locator("dd")
        assert await fact.inner_text() == ((same and home) or ids.short_id(node))
        await there.choose("deny")
        await there.answered("Well.")


def swap(asked: dict[str, Any]) -> None:
    asked["body"]["input"]["title"] = "Something harmless"


def swap_and_hash(asked: dict[str, Any]) -> None:
    swap(asked)
    asked["arguments_digest"] = digest(asked["body"])


def other_actor(asked: dict[str, Any]) -> None:
    asked["approval"]["actor"] = asked["approval"]["approver"]


@pytest.mark.req("PAGE-2", "PAIN-3")
@pytest.mark.parametrize(
    ("lie", "rule"), [(swap, "digest"), (swap_and_hash, "arguments"), (other_actor, "actor")]
)
async def test_what_is_not_what_is_shown_is_never_signed(street: Street, lie: Any, rule: str) -> None:
    offers(street, f"Lend {rule}", f"Title {rule}")
    async with visit(street) as there:
        await lying(there, lie)
        await there.ask(f"Lend {rule}", "market_post")
        await dialog(there)
        await expect(there.page.locator("dialog .error")).to_contain_text(f"({rule})")
        await expect(there.page.locator("dialog [data-choice=approve]")).to_be_disabled()
        await there.page.keyboard.press("Escape")
        await there.card("waiting")
    assert f"Title {rule}" not in await titles(street)


@pytest.mark.req("PAGE-2", "PAIN-3")
async def test_an_edit_that_comes_back_as_something_else_is_refused(street: Street) -> None:
    offers(street, "Lend my boat", "Boat to lend")
    async with visit(street) as there:
        page = there.page

        async def change(route: Any) -> None:
            answer = await route.fetch()
            found = await answer.json()
            found["body"]["input"]["title"] = "Boat to give away"
            found["arguments_digest"] = found["approval"]["arguments_digest"] = digest(found["body"])
            await route.fulfill(response=answer, json=found)

        await page.route("**/preview", change)
        await there.ask("Lend my boat", "market_post")
        await dialog(there)
        await there.choose("edit")
        await page.get_by_label("title").fill("Boat to lend in May")
        await page.get_by_role("button", name="Show the changed call").click()
        await expect(page.locator("dialog .error:not(:empty)")).to_contain_text("(edited title)")
        await page.keyboard.press("Escape")
    assert not {"Boat to give away", "Boat to lend"} & set(await titles(street))


# --- breaks, reloads, restarts ----------------------------------------------------------------------------


@pytest.mark.req("PAGE-6", "PAIN-14")
async def test_a_stream_that_breaks_again_and_again_gives_the_same_text(street: Street) -> None:
    street.model.turns["Tell me a story"] = [Say(STORY)]
    cuts = [3, 11, 1, 20, 9]
    async with visit(street) as there:

        def connect(route: WebSocketRoute) -> None:
            server = route.connect_to_server()
            left = 10**6

            def heard(message: str | bytes) -> None:
                nonlocal left
                frame = json.loads(message)
                if frame["event"] == "opened" and "stream" in frame["data"] and cuts:
                    left = cuts.pop(0)
                if left > 0:
                    route.send(message)
                left -= 1
                if left == 0:
                    broken.append(asyncio.ensure_future(route.close(code=1011, reason="cut")))

            server.on_message(heard)

        broken: list[Any] = []
        there.allowed.append("CLOSING or CLOSED")  # said by what stands in for the socket in this test
        await there.page.route_web_socket(re.compile("/v1/socket"), connect)
        await there.page.reload()
        await there.page.wait_for_selector("#question")
        await there.ask("Tell me a story")
        await wait_for(lambda: len(broken) == 5, 20)
        await there.answered("word89")
        assert await there.page.locator(".answer .text").inner_text() == STORY
    assert not cuts


@pytest.mark.req("PAGE-12", "PAIN-4")
async def test_a_reload_in_mid_confirmation_loses_nothing(street: Street) -> None:
    offers(street, "Lend my tent", "Tent to lend")
    async with visit(street) as there:
        page = there.page
        await there.ask("Lend my tent", "market_post")
        await dialog(there)
        await page.reload()
        await expect(page.locator("#nav-waiting .badge")).to_have_text("1")
        assert await page.locator(".answer .text").first.inner_text() == "I write the post."
        await page.get_by_role("button", name="Look and decide").click()
        await expect(page.locator("dialog")).to_contain_text("Tent to lend")
        await there.choose("approve")
        await there.answered("It is posted.")
        await expect(page.locator("#nav-waiting .badge")).to_have_count(0)
        assert await page.locator(".answer").count() == 1
    assert (await titles(street)).count("Tent to lend") == 1


@pytest.mark.req("PAGE-12", "PAIN-4")
async def test_what_waits_survives_a_restart_of_the_gateway(street: Street) -> None:
    offers(street, "Lend my oven", "Oven to lend")
    async with visit(street) as there:
        there.allowed += ["WebSocket", "ERR_CONNECTION_REFUSED"]
        page = there.page
        await there.ask("Lend my oven", "market_post")
        await dialog(there)
        await there.choose("later")
        await street.stop()
        await street.start()
        await page.click("#nav-waiting")
        run = page.locator(".runs .card").filter(has_text="Lend my oven")
        await run.get_by_role("button", name="Look and decide").click()
        await expect(page.locator("dialog")).to_contain_text("Oven to lend")
        await there.choose("approve")
        await there.answered("It is posted.")
    assert (await titles(street)).count("Oven to lend") == 1
