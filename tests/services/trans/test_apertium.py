"""Every pair of languages that Apertium has here, beside the `apertium` command."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hearthnet_trans.apertium.backend import Apertium
from hearthnet_trans.apertium.markup import pieces
from hearthnet_trans.backend import Pair, TranslationWork
from tests.helpers.waiting import wait_for
from tests.services.trans.chrf import chrf
from tests.services.trans.programs import PAIRS, by_command, in_group, need
from tests.services.trans.sentences import lines

pytestmark = pytest.mark.asyncio(loop_scope="module")
every_pair = pytest.mark.parametrize("pair", PAIRS, ids="-".join)
BOTH_WAYS = [pair for pair in PAIRS if pair[::-1] in PAIRS] or PAIRS
both_ways = pytest.mark.parametrize("pair", BOTH_WAYS, ids="-".join)
ODD = [
    "\x00", "😀 👩‍👩‍👧", "a\u0301\u0323", "x" * 3_000, "שלום עולם", "[]{}^$/\\@<>*#~_", ".[]", "[0][1]",
    "\ufeff\u202e",
    "&amp;&lt;b&gt;", "<b>", "</b><b>", "^a<n>$", "\r\n\t\v", "\U0001d518\U0001d52b", "*_~`", "\ud800",
]  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def apertium() -> AsyncIterator[Apertium]:
    need(*PAIRS)
    backend = Apertium(most=len(PAIRS) + 1, hangs_seconds=60)
    await backend.open(lambda: None)
    try:
        yield backend
    finally:
        await backend.close()


async def translated(apertium: Apertium, pair: Pair, texts: list[str]) -> list[str]:
    done = await asyncio.gather(*(apertium.translate(TranslationWork(text, *pair)) for text in texts))
    return [one.text for one in done]


def without_gaps(text: str) -> str:
    """What the command prints, without the spaces where it left a word out; two before a number are ours."""
    return re.sub(r"^ +(?![\d ])|(?<= ) +(?![\d ])", "", text, flags=re.MULTILINE)


@pytest.mark.req("TRANS-5")
@every_pair
async def test_sentences_are_translated_as_by_the_command(apertium: Apertium, pair: Pair) -> None:
    texts = lines(pair[0])
    by_us = await translated(apertium, pair, texts)
    whole = await asyncio.to_thread(by_command, pair, "\n\n".join(texts) + "\n")
    by_it = without_gaps(whole).strip("\n").split("\n\n")
    assert by_us != texts or pair[0] not in ("en", "es", "mk", "bg", "ur", "hi")
    assert chrf(by_us, by_it) >= 99.9
    assert by_us == by_it


@pytest.mark.req("TRANS-5")
@every_pair
async def test_a_document_keeps_its_lines_and_spaces(apertium: Apertium, pair: Pair) -> None:
    text = "\n\n".join("\n".join(lines(pair[0])[at : at + 2]) + "  12" for at in range(0, 6, 2)) + "\n"
    (by_us,) = await translated(apertium, pair, [text])
    assert by_us == without_gaps(await asyncio.to_thread(by_command, pair, text))
    assert [len(part.splitlines()) for part in by_us.split("\n\n")] == [2, 2, 2] or len(lines(pair[0])) < 6


@pytest.mark.req("TRANS-6")
@every_pair
async def test_markup_comes_back_exactly(apertium: Apertium, pair: Pair) -> None:
    said = lines(pair[0])
    text = (
        f"# {said[0]}\n\n- **{said[0]}** [{said[-1]}](https://example.org/a_b?c=d&e)\n- `{said[0]}`\n\n"
        f'<p class="a b">{said[-1]}<br/>\n<code>{said[0]}</code></p>\n\n1. {{name}}  {said[-1]}\n'
    )
    (by_us,) = await translated(apertium, pair, [text])
    kept = [[one.text for one in pieces(whole) if one.kind in ("kept", "break")] for whole in (text, by_us)]
    assert kept[0] == kept[1]
    assert by_us != text or pair[0] not in ("en", "es", "mk", "bg", "ur", "hi")


@pytest.mark.req("TRANS-5")
async def test_html_is_translated_as_by_the_command(apertium: Apertium) -> None:
    need(("en", "es"))
    text = '<p>The <b>old</b> house is big.</p>\n<p id="x">My <i>sister</i> drinks water.</p>\n'
    (by_us,) = await translated(apertium, ("en", "es"), [text])
    assert by_us == await asyncio.to_thread(by_command, ("en", "es"), text, "html-noent")


@pytest.mark.req("TRANS-6")
async def test_words_stay_in_their_cell_and_paragraph_and_what_is_left_out_leaves_no_gap(
    apertium: Apertium,
) -> None:
    need(("en", "es"))
    said = {
        "| dog | cat |\n| house | red |": "| Perro | Gato |\n| Casa | Rojo |",
        "House\r\n\r\nCat": "Casa\r\n\r\nGato",
        "House\r\rCat": "Casa\r\rGato",
        "I have a house.": "Tengo una casa.",
        " I have a house. ": " Tengo una casa. ",
        "He said it. I know.": "Lo dijo. Sé.",
        '"I have a house."': '"Tengo una casa."',
    }
    assert await translated(apertium, ("en", "es"), list(said)) == list(said.values())


@pytest.mark.req("TRANS-5")
@both_ways
async def test_there_and_back_it_is_much_the_same(apertium: Apertium, pair: Pair) -> None:
    back = pair[1], pair[0]
    texts = lines(pair[0])
    there = await translated(apertium, pair, texts)
    assert chrf(await translated(apertium, back, there), texts) > 55


@pytest.mark.req("TRANS-8")
@every_pair
async def test_whatever_stands_in_a_text_it_is_answered(apertium: Apertium, pair: Pair) -> None:
    sentence = lines(pair[0])[0]
    texts = [*ODD, *(f"{sentence}{odd}{sentence}" for odd in ODD), sentence * 100]
    done = await translated(apertium, pair, [text[:4000] for text in texts])
    assert done[: len(ODD)][0] == "\x00"
    for odd, text in zip(ODD, done[len(ODD) : -1], strict=True):
        kept = [one.text for one in pieces(odd) if one.kind == "kept"]
        assert all(one in text for one in kept), (odd, text)


@pytest.mark.req("TRANS-4")
async def test_unknown_words_lower_the_confidence_and_bear_no_mark(apertium: Apertium) -> None:
    need(("en", "es"))
    done = await apertium.translate(TranslationWork("The xyzzyx is big.", "en", "es"))
    assert (done.text, done.confidence) == ("El xyzzyx es grande.", 0.75)


@pytest.mark.req("TRANS-7")
async def test_killed_in_the_middle_of_its_work_it_goes_on(apertium: Apertium) -> None:
    pair = PAIRS[0]
    texts = lines(pair[0]) * 60
    expected = await translated(apertium, pair, texts)
    running = apertium._pipelines[pair]
    asking = asyncio.gather(*(apertium.translate(TranslationWork(text, *pair)) for text in texts))
    await wait_for(lambda: not running.idle, 30)
    running._kill()
    assert [one.text for one in await asking] == expected
    assert apertium._pipelines[pair] is not running
    await wait_for(lambda: in_group(running._process.pid) == [], 30)
