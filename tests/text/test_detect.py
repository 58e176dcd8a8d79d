"""Which language a text is in (docs/decisions/0121)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hearthnet.text import detect

SENTENCES = {
    "de": "Bitte kochen Sie das Wasser ab, bevor Sie es trinken.",
    "en": "Please boil the water of the river before you drink it.",
    "es": "Por favor, hierva el agua del río antes de beberla.",
    "fr": "Veuillez faire bouillir l'eau de la rivière avant de la boire.",
    "it": "Per favore, fate bollire l'acqua del fiume prima di berla.",
    "ca": "L'aigua del riu s'ha de bullir abans que ningú en begui.",
    "sv": "Vattnet från floden måste kokas innan man dricker det.",
    "pl": "Proszę przegotować wodę z rzeki przed wypiciem.",
    "ru": "Пожалуйста, кипятите воду из реки перед употреблением.",
    "ja": "川の水は飲む前に沸かしてください。",
    "he": "נא להרתיח את מי הנהר לפני השתייה.",
}


@pytest.mark.req("LANG-1")
@pytest.mark.parametrize("code", SENTENCES)
def test_a_sentence_is_enough(code: str) -> None:
    found = detect.detect(SENTENCES[code])
    assert found is not None
    assert found.language == code
    assert detect.SURE <= found.confidence <= 1


@pytest.mark.req("LANG-1")
@pytest.mark.parametrize("text", ["", " \n\t", "ok", "12345 - 67", "water", "😀", "<b></b>", "\x00", "Linux"])
def test_what_says_too_little_is_not_guessed(text: str) -> None:
    assert detect.detect(text) is None


@pytest.mark.req("LANG-1")
def test_what_is_expected_decides_between_languages_that_look_alike() -> None:
    assert detect.detect("Tengo hambre.") is None
    found = detect.detect("Tengo hambre.", among=("en", "es"))
    assert found is not None
    assert found.language == "es"


@pytest.mark.req("LANG-1")
def test_what_is_expected_also_decides_against_a_likely_mistake() -> None:
    text = "The dog barks when a stranger comes."
    for among, code in (((), "da"), (("en", "es"), "en"), (("ja", "he"), "da")):
        found = detect.detect(text, among)
        assert found is not None
        assert found.language == code


@pytest.mark.req("LANG-1")
def test_what_is_surely_not_expected_is_told_all_the_same() -> None:
    found = detect.detect(SENTENCES["de"], among=("en", "es"))
    assert found is not None
    assert found.language == "de"


@pytest.mark.req("LANG-1")
def test_what_is_expected_counts_for_nothing_where_it_is_most_unlikely() -> None:
    assert detect.detect("Tengo hambre.", among=("ja", "he")) is None


@pytest.mark.req("LANG-1")
def test_markup_and_addresses_count_for_nothing() -> None:
    text = '<p class="the-house-of-the-rising-sun">Das Wasser ist kalt und klar.</p> https://example.org/the/house'
    found = detect.detect(text)
    assert found is not None
    assert found.language == "de"


@pytest.mark.req("LANG-1")
def test_of_a_long_text_beginning_and_middle_count() -> None:
    stars, german = "* " * 5_000, SENTENCES["de"] * 30
    for text in (german + stars + stars, stars + german + stars):
        found = detect.detect(text)
        assert found is not None
        assert found.language == "de"
    assert detect.detect(stars + stars + german) is None


@pytest.mark.req("LANG-1")
@pytest.mark.asyncio
async def test_it_is_asked_from_the_event_loop() -> None:
    found = await detect.detected(SENTENCES["fr"], among=("fr",))
    assert found is not None
    assert found.language == "fr"


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    detect._detector.cache_clear()
    yield
    detect._detector.cache_clear()


@pytest.mark.req("LANG-2")
@pytest.mark.usefixtures("without_library")
def test_without_the_library_nothing_is_detected() -> None:
    assert not detect.available()
    assert detect.detect(SENTENCES["en"]) is None


@pytest.mark.req("LANG-2")
def test_the_library_is_not_loaded_before_the_first_question() -> None:
    script = "import sys, hearthnet.text.detect as l; l.available(); sys.exit('lingua' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
