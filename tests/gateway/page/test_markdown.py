"""Markdown of models: read by a library into a tree, drawn by the page as a few harmless elements."""

from __future__ import annotations

import itertools
import random
import string
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest
from playwright.async_api import Page, expect

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.page.markdown import MAX_CHARACTERS, MAX_NODES, TAGS, Node, read_markdown, tree
from tests.gateway.page.street import Street, visit
from tests.helpers.scripted_model import Say

TABLE: Final = "| Tool | Uses |\n|:-----|-----:|\n| saw | **3** |\n| `axe` | 4 |"


def element(tag: str, *children: Node, **more: Any) -> dict[str, Any]:
    return {"tag": tag, "children": list(children), **more}


def tags(nodes: list[Node]) -> Iterator[str]:
    """The tags of a tree."""
    for node in nodes:
        if isinstance(node, dict):
            yield node["tag"]
            yield from tags(node["children"])


@pytest.mark.req("PAGE-3")
def test_markdown_is_a_tree_of_harmless_elements() -> None:
    text = (
        "## Title\n\nA **bold**, ~~old~~ and *soft* `x<b>` word,\nhere.  \nNext.\n\n"
        "- one\n- two\n  - more\n\n3. three\n4. four\n\n> said\n\n```py\n<script>\n```\n---"
    )
    assert tree(text) == [
        element("h4", "Title"),
        element(
            "p", "A ", element("strong", "bold"), ", ", element("s", "old"), " and ", element("em", "soft"),
            " ", element("code", "x<b>"), " word,", "\n", "here.", element("br"), "Next.",
        ),
        element("ul", element("li", "one"), element("li", "two", element("ul", element("li", "more")))),
        element("ol", element("li", "three"), element("li", "four"), start=3),
        element("blockquote", element("p", "said")),
        element("pre", element("code", "<script>\n")),
        element("hr"),
    ]  # fmt: skip


@pytest.mark.req("PAGE-20")
def test_markdown_table_is_read_with_its_alignment() -> None:
    (found,) = tree(TABLE)
    assert found == element(
        "table",
        element(
            "thead", element("tr", element("th", "Tool", align="left"), element("th", "Uses", align="right"))
        ),
        element(
            "tbody",
            element(
                "tr", element("td", "saw", align="left"),
                element("td", element("strong", "3"), align="right"),
            ),
            element(
                "tr", element("td", element("code", "axe"), align="left"), element("td", "4", align="right"),
            ),
        ),
    )  # fmt: skip


@pytest.mark.req("PAGE-3")
@pytest.mark.parametrize(
    "text",
    [
        "[link](javascript:alert(1))",
        "![picture](http://example.com/x.png)",
        "<http://example.com>",
        "http://example.com",
        "[name]",
        "[name]: http://example.com",
        "<b>bold</b>",
        "<img src=x onerror=1>",
        "<!-- said -->",
    ],
)
def test_markdown_with_links_and_html_stays_text(text: str) -> None:
    assert tree(text) == [element("p", text)]


@pytest.mark.req("PAGE-3")
def test_markdown_of_any_characters_gives_known_tags() -> None:
    chance = random.Random(7)
    alphabet = "*_`~#>-+|:[]()<>!&\\\n\n  .1a\t\0\u202e" + string.ascii_letters[:4]
    for _ in range(500):
        found = tree("".join(chance.choices(alphabet, k=chance.randrange(120))))
        assert set(tags(found)) <= TAGS


@pytest.mark.req("PAGE-20")
@pytest.mark.asyncio
async def test_markdown_beyond_its_limits_is_refused() -> None:
    wide = 150
    table = "|" + "a|" * wide + "\n|" + "-|" * wide + "\n" + "|\n" * (MAX_NODES // wide)
    deep = "> " * (MAX_CHARACTERS // 2)
    # No line says how many columns it has until the parser reads it, and it would make a million cells.
    lean = "|a" * 255 + "\n" + "|-" * 255 + "\n" + "a\n" * 7_000
    before = time.process_time()
    with pytest.raises(HearthNetError):
        tree(lean)
    assert time.process_time() - before < 0.1
    for text in ("a" * (MAX_CHARACTERS + 1), table, deep, "- " * 10 + "ten lists in one another"):
        with pytest.raises(HearthNetError) as caught:
            await read_markdown(text)
        assert caught.value.code == "payload_too_large"
    assert await read_markdown("> " * 19 + "and\n\n" + "- " * 9 + "and")


def said(nodes: list[Node]) -> str:
    """What can be read of a tree."""
    return "".join(node if isinstance(node, str) else f" {said(node['children'])} " for node in nodes)


@pytest.mark.req("PAGE-20")
@pytest.mark.parametrize("lead", ["", "> ", "  "])
def test_markdown_table_shows_cells_without_a_column(lead: str) -> None:
    rows = ("| a |", "|---|", "| 1 | surplus | \\| more |", "2 | other")
    found = said(tree("\n".join(lead + row for row in rows)))
    assert found.split() == ["a", "1", "surplus", "|", "more", "2", "other"]


@pytest.mark.req("PAGE-20")
def test_markdown_leaves_nothing_out_that_was_said() -> None:
    """What a person does not see the model reads all the same, with the next question."""
    chance = random.Random(9)
    marks = [
        "\n",
        "\n\n",
        "> ",
        "- ",
        "1. ",
        "    ",
        " ",
        "|",
        "|-|",
        "|-|-|\n",
        "\n|",
        "```",
        "~~~",
        "`",
        "**",
    ]
    marks += ["**", "_", "~~", "# ", "---", "===", "\\", "<", "](", "[", "\r\n", "\r", "  \n", "<!--", "\0"]
    for _ in range(1500):
        words = [f"w{number}@" for number in range(chance.randrange(16))]
        text = "".join("".join(chance.choices(marks, k=chance.randrange(4))) + word for word in words)
        found = said(tree(text))
        assert [word for word in words if word not in found] == [], text


# --- in the browser ---------------------------------------------------------------------------------------

VECTORS: Final = (
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "<svg onload=window.hit=1>",
    "<svg><script>window.hit=1</script></svg>",
    "<iframe srcdoc='<script>parent.hit = 1</script>'></iframe>",
    "<iframe src=javascript:parent.hit=1>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.hit=1>",
    "<body onload=window.hit=1>",
    "<details open ontoggle=window.hit=1>",
    "<input autofocus onfocus=window.hit=1>",
    "<a href=javascript:window.hit=1>x</a>",
    "<style>body{display:none}</style>",
    "<style>@import 'http://127.0.0.1:9/x.css'</style>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<base href=http://127.0.0.1:9/>",
    "<object data=http://127.0.0.1:9/>",
    "<embed src=http://127.0.0.1:9/>",
    "<form action=http://127.0.0.1:9/><button>x</button></form>",
    "<video src=http://127.0.0.1:9/ onerror=window.hit=1>",
    "<template><script>window.hit=1</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=window.hit=1>'>",
    "[x](javascript:window.hit=1)",
    "[x](data:text/html,<script>opener.hit=1</script>)",
    "[x](vbscript:window.hit=1 'title\" onmouseover=\"window.hit=1')",
    "![x](http://127.0.0.1:9/leak.png?secret)",
    '![x](x "onerror=window.hit=1")',
    "[x]: javascript:window.hit=1\n\n[x]",
    "<javascript:window.hit=1>",
    "<http://127.0.0.1:9/>",
    "&lt;script&gt;window.hit=1&lt;/script&gt;",
    "&#x3c;img src=x onerror=window.hit=1&#x3e;",
    "\\<img src=x onerror=window.hit=1\\>",
    "\x00<\x00script>window.hit=1</script>",
    "\u202e<script>window.hit=1</script>",
    "`<script>window.hit=1</script>",
    "<![CDATA[<script>window.hit=1</script>]]>",
    "<!--><script>window.hit=1</script>-->",
    "<?php window.hit=1 ?>",
    "__proto__",
)
PLACES: Final = (
    "{}",
    "# {}",
    "- {}\n  - {}",
    "7. {}",
    "> {}",
    "| {} | b |\n|---|---|\n| {} | {} |",
    "**{}** *{}* ~~{}~~",
    "```{}\n{}\n```",
    "`` {} ``",
    "    {}",
)
DRAW: Final = """async (texts) => {
  const base = document.body.dataset.tools.replace("tools.json", "");
  const { Prose } = await import(`${base}js/prose.js`);
  const place = document.createElement("div");
  document.getElementById("main").append(place);
  const draw = async (text) => {
    const prose = new Prose();
    place.append(prose.box);
    prose.update(text, true);
    await new Promise((resolve) => new MutationObserver(resolve).observe(prose.box, { childList: true }));
    const all = [...prose.box.querySelectorAll("*")];
    const attributes = all.flatMap((one) => [...one.attributes].map(({ name, value }) => `${name}=${value}`));
    return { names: all.map((one) => one.localName), text: prose.box.textContent, attributes };
  };
  const found = [];
  while (texts.length) found.push(...await Promise.all(texts.splice(0, 20).map(draw)));
  place.remove();
  return found;
}"""
ATTRIBUTES: Final = {"class=scroll", "class=to-left", "class=to-right", "class=to-center", "tabindex=0"}


def assert_harmless(found: list[dict[str, Any]]) -> None:
    for one in found:
        assert set(one["names"]) <= {*TAGS, "div"}, one
        starts = {name for name in one["attributes"] if name.startswith("start=")}
        assert set(one["attributes"]) - starts <= ATTRIBUTES, one


@pytest.mark.req("PAGE-3", "PAGE-9")
@pytest.mark.asyncio(loop_scope="module")
async def test_hostile_markdown_is_drawn_as_text(street: Street) -> None:
    texts = [place.replace("{}", vector) for place, vector in itertools.product(PLACES, VECTORS)]
    chance = random.Random(20)
    texts += ["".join(chance.sample([*VECTORS, *PLACES, "\n\n", "*", "|", "`"], 6)) for _ in range(40)]
    assert len(texts) == 440
    async with visit(street) as there:
        found = await there.page.evaluate(DRAW, texts)
        assert_harmless(found)
        shown = ["".join(one["text"].split()) for one in found]
        assert shown == ["".join(said(tree(text)).split()) for text in texts]
        assert found[0]["text"] == VECTORS[0]
        assert await there.page.evaluate("window.hit") is None


@pytest.mark.req("PAGE-3", "PAGE-9")
@pytest.mark.asyncio(loop_scope="module")
async def test_hostile_trees_give_no_other_elements(street: Street) -> None:
    """What a gateway could send that was taken over: the page builds what Markdown has, and nothing else."""
    bad: list[Any] = [
        element(tag, "x") for tag in ("script", "iframe", "a", "img", "style", "__proto__", "div")
    ]
    bad += [
        element(
            "p", "x", onclick="window.hit=1", style="x", align="x onload", start="1", href="javascript:1"
        ),
        element("ol", "x", start='1" onload="window.hit=1'),
        {"tag": ["p"], "children": ["x"]},
        {"tag": "p", "children": {"length": 1}},
        {"tag": "p"},
        None,
        7,
        [["x"]],
    ]
    deep: dict[str, Any] = element("p", "x")
    for _ in range(60):
        deep = element("blockquote", deep)
    async with visit(street) as there:
        page = there.page
        trees = [[one] for one in [*bad, deep]]

        async def answer(route: Any) -> None:
            number = int(route.request.post_data_json["text"].removeprefix("tree "))
            await route.fulfill(json={"tree": trees[number]})

        await page.route("**/page/markdown", answer)
        found = await page.evaluate(DRAW, [f"tree {number}" for number in range(len(trees))])
        assert await page.evaluate("window.hit") is None
    drawn = [*[([], "x")] * 7, (["p"], "x"), (["ol"], "x"), ([], "x"), (["p"], ""), (["p"], "")]
    drawn += [*[([], "")] * 3, (["blockquote"] * 60 + ["p"], "x")]
    assert [(one["names"], one["text"]) for one in found] == drawn
    assert [one["attributes"] for one in found] == [[]] * len(trees)


async def answer_of(page: Page) -> list[list[str]]:
    rows = await page.locator(".answer .text tr").all()
    return [await row.locator("th, td").all_inner_texts() for row in rows]


@pytest.mark.req("PAGE-20")
@pytest.mark.asyncio(loop_scope="module")
async def test_answer_with_a_table_is_drawn_and_kept(street: Street) -> None:
    street.model.turns["Which tools?"] = [Say(f"These:\n\n{TABLE}\n\nThat is all of them.")]
    async with visit(street) as there:
        page = there.page
        await there.ask("Which tools?")
        await there.answered("all of them")
        await expect(page.locator(".answer .text table")).to_have_count(1)
        assert await answer_of(page) == [["Tool", "Uses"], ["saw", "3"], ["axe", "4"]]
        assert await page.locator(".answer td strong").inner_text() == "3"
        align = "getComputedStyle(document.querySelector('.answer td:last-child')).textAlign"
        assert await page.evaluate(align) == "right"
        await page.reload()
        await expect(page.locator(".answer .text table")).to_have_count(1)


@pytest.mark.req("PAGE-20")
@pytest.mark.asyncio(loop_scope="module")
async def test_answer_that_still_comes_is_drawn_by_its_paragraphs(street: Street) -> None:
    street.model.turns["Go on"] = [Say("First **bold** words.\n\n- one\n- two\n\nAnd so ", forever=True)]
    async with visit(street) as there:
        page = there.page
        await there.ask("Go on")
        await expect(page.locator(".answer .text strong")).to_have_text("bold")
        await expect(page.locator(".answer .text li")).to_have_count(2)
        await expect(page.locator(".answer .text p").last).to_contain_text("And so on on")
        await page.click("#stop")
        await expect(page.locator(".answer .state")).to_have_text("Stopped.")


@pytest.mark.req("PAGE-20")
@pytest.mark.asyncio(loop_scope="module")
async def test_answer_is_plain_text_where_markdown_is_not_read(street: Street) -> None:
    street.model.turns["Plainly"] = [Say("**As** it was\n\nwritten.")]
    async with visit(street) as there:
        there.allowed.append("Failed to load resource")
        await there.page.route("**/page/markdown", lambda route: route.abort())
        await there.ask("Plainly")
        await there.answered("written.")
        assert await there.page.locator(".answer .text").inner_text() == "**As** it was\n\nwritten."


@pytest.mark.req("PAGE-20")
@pytest.mark.asyncio(loop_scope="module")
async def test_markdown_is_read_for_clients_alone(street: Street) -> None:
    async with httpx2.AsyncClient(base_url=street.url, trust_env=False) as http:
        answer = await http.post("/page/markdown", json={"text": "x"})
    assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
