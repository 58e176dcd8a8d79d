"""The trans service on a real node: who translates, what is refused, and what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.bus.bus import Bus
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.text import detect
from hearthnet.text.language_codes import NAMES, check, code_of
from hearthnet_trans import TransService
from hearthnet_trans.backend import Pair, Translation, TranslationWork
from hearthnet_trans.cache import Cache, CacheKey
from tests.helpers.contract_examples import missing_from_output, request_of
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
GERMAN = "Das Wasser des Flusses ist heute sehr kalt und klar."


class Shouting:
    """A backend that says what it was asked, louder."""

    def __init__(self, name: str, *pairs: str) -> None:
        self.name = name
        self.places = 4
        self.pairs: frozenset[Pair] = frozenset(self._of(pair) for pair in pairs)
        self.note = ""
        self.asked: list[TranslationWork] = []
        self.changed: Callable[[], None] | None = None
        self.closed = False

    @staticmethod
    def _of(pair: str) -> Pair:
        first, _, second = pair.partition("-")
        return first, second

    async def open(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    async def translate(self, work: TranslationWork) -> Translation:
        self.asked.append(work)
        return Translation(work.text.upper(), f"{self.name}-model", 0.5)

    async def close(self) -> None:
        self.closed = True

    def become(self, *pairs: str, note: str = "") -> None:
        self.pairs, self.note = frozenset(map(self._of, pairs)), note
        assert self.changed is not None
        self.changed()


def body(text: str, source: str, target: str, **params: Any) -> dict[str, Any]:
    return {"params": params, "input": {"text": text, "from": source, "to": target}}


async def refusal(bus: Bus, *asked: str, **params: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await bus.call("trans.text", body(*asked, **params))
    return caught.value


@pytest.mark.req("TRANS-1")
async def test_the_first_that_knows_the_pair_translates_unless_one_is_named(mesh: Mesh) -> None:
    first, second = Shouting("first", "en-es"), Shouting("second", "en-es", "en-fr")
    async with mesh.hosting(TransService([first, second])), await mesh.bus() as bus:
        offers = {
            view.params["backend"]: view.params["languages_pairs"]
            for view in await offered(bus, "trans.text", 2)
        }
        assert offers == {"first": [["en", "es"]], "second": [["en", "es"], ["en", "fr"]]}
        reply = await bus.call("trans.text", body("hello", "en", "es"))
        assert reply.output == {"text": "HELLO", "confidence": 0.5}
        assert (reply.meta["backend"], reply.meta["model"]) == ("first", "first-model")
        assert (await bus.call("trans.text", body("hello", "en", "fr"))).meta["backend"] == "second"
        named = await bus.call("trans.text", body("hello", "en", "es", backend="second"))
        assert named.meta["backend"] == "second"
        wrong = await refusal(bus, "hello", "en", "fr", backend="first")
        assert wrong.code == "not_found"
        assert "from en into: es" in wrong.message
        assert (await refusal(bus, "hello", "en", "es", backend="third")).code == "not_found"
    assert first.closed
    assert second.closed


@pytest.mark.req("TRANS-3")
async def test_a_pair_that_nobody_has_names_the_nearest(mesh: Mesh) -> None:
    backend = Shouting("one", "en-es", "es-ca", "fr-ca")
    async with mesh.hosting(TransService([backend])), await mesh.bus() as bus:
        error = await refusal(bus, "hello", "en", "ca")
        assert error.code == "not_found"
        assert error.message.endswith(
            "from 'en' to 'ca'; from en into: es; into ca from: es, fr; in two steps by way of: es"
        )
        assert error.details["nearest"] == {"from": ["es"], "to": ["es", "fr"], "through": ["es"]}
        found_out = await refusal(bus, "hello", "auto", "qq")
        assert "goes to 'qq'; from any into: ca, es; into qq from: nothing" in found_out.message
        for source, target in (("qq", "es"), ("en", "qq"), ("auto", "qq")):
            assert (await refusal(bus, "hello", source, target)).code == "not_found"
        for source, target in (("English", "es"), ("en", "auto"), ("EN", "es"), ("", "es")):
            assert (await refusal(bus, "hello", source, target)).code == "bad_request"
        with pytest.raises(HearthNetError, match="nobody here translates from en into ca"):
            TransService([backend])._choose("en", "ca", None)


@pytest.mark.req("TRANS-3")
@pytest.mark.parametrize(
    ("code", "hint"),
    [("qq", "take an ISO 639-1 code"), ("deu", "German is de"), ("nde", "did you mean ne \\(Nepali\\)")],
)
async def test_a_language_that_does_not_exist_is_refused_with_what_may_be_meant(code: str, hint: str) -> None:
    with pytest.raises(HearthNetError, match=hint) as caught:
        check(code)
    assert caught.value.code == "bad_request"


@pytest.mark.req("TRANS-3")
async def test_low_german_is_a_language_and_short_codes_come_first() -> None:
    check("nds")
    assert (code_of("eng"), code_of("nds"), code_of("qqq")) == ("en", "nds", "qqq")
    assert len(NAMES) > 180


@pytest.mark.req("TRANS-9")
async def test_the_language_is_found_out_and_told(mesh: Mesh) -> None:
    backend = Shouting("one", "de-en", "es-en", "nds-en")
    async with mesh.hosting(TransService([backend])), await mesh.bus() as bus:
        reply = await bus.call("trans.text", body(GERMAN, "auto", "en"))
        assert reply.output["detected_from"] == "de"
        assert backend.asked[0].source == "de"
        there = await bus.call("trans.text", body("The water is very cold today.", "auto", "en"))
        assert there.output == {
            "text": "The water is very cold today.",
            "confidence": 1.0,
            "detected_from": "en",
        }
        assert there.meta["backend"] == "none"
        assert "detected_from" not in (await bus.call("trans.text", body(GERMAN, "nds", "en"))).output
        for text in ("", "ok", "<b></b>", "\x00"):
            error = await refusal(bus, text, "auto", "en")
            assert error.code == "bad_request"
            assert "name it in `from` (into en there is: de, es, nds)" in error.message
        other = await refusal(bus, "Veuillez faire bouillir l'eau avant de la boire.", "auto", "en")
        assert (other.code, other.details["nearest"]["to"]) == ("not_found", ["de", "es", "nds"])


@pytest.mark.req("TRANS-9")
async def test_without_the_library_it_says_so(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet_trans.service.detector_available", lambda: False)
    monkeypatch.setattr(detect, "_detector", lambda: None)
    async with mesh.hosting(TransService([Shouting("one", "de-en")])), await mesh.bus() as bus:
        assert "not installed" in (await refusal(bus, GERMAN, "auto", "en")).message
        assert (await bus.call("trans.text", body(GERMAN, "de", "en"))).output["text"] == GERMAN.upper()


@pytest.mark.req("TRANS-8")
async def test_more_than_fits_is_refused_and_all_that_fits_is_taken(mesh: Mesh) -> None:
    async with mesh.hosting(TransService([Shouting("one", "de-en")])), await mesh.bus() as bus:
        error = await refusal(bus, "x" * 4001, "de", "en")
        assert (error.code, error.details["path"]) == ("bad_request", "/input/text")
        for text in ("x" * 4000, "", "\x00\u202e😀", "ß" * 4000):
            assert (await bus.call("trans.text", body(text, "de", "en"))).output["text"] == text.upper()


@pytest.mark.req("TRANS-10")
async def test_what_was_translated_is_remembered_until_the_backend_is_another(mesh: Mesh) -> None:
    backend = Shouting("one", "de-en", "de-fr")
    async with mesh.hosting(TransService([backend])), await mesh.bus() as bus:
        for target in ("en", "en", "fr", "en"):
            reply = await bus.call("trans.text", body(GERMAN, "de", target))
        assert reply.meta["cached"] is True
        assert [work.target for work in backend.asked] == ["en", "fr"]
        urgent = body(GERMAN, "de", "en")
        urgent["input"]["domain"] = "emergency"
        assert (await bus.call("trans.text", urgent)).meta["cached"] is False
        assert backend.asked[-1].domain == "emergency"
        backend.become("de-en")
        assert (await bus.call("trans.text", body(GERMAN, "de", "en"))).meta["cached"] is False


@pytest.mark.req("TRANS-10")
async def test_the_memory_is_bounded_and_the_oldest_goes_first() -> None:
    cache = Cache(entries=3, characters=10)
    keys = [CacheKey(str(number), "a", "b", "x" if number % 2 else "y", None) for number in range(5)]
    for key in keys[:3]:
        cache.put(key, Translation("1", ""))
    assert cache.get(keys[0]) is not None
    cache.put(keys[3], Translation("1", ""))
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True, False]
    cache.put(keys[0], Translation("12345678", ""))
    cache.put(keys[4], Translation("12", ""))
    assert [cache.get(key) is not None for key in keys] == [True, False, False, False, True]
    cache.forget("y")
    assert len(cache) == 0
    cache.put(keys[0], Translation("123456789012", ""))
    assert len(cache) == 0


@pytest.mark.req("TRANS-2")
async def test_nothing_is_offered_that_nothing_is_there_for(mesh: Mesh) -> None:
    backend = Shouting("one")
    service = TransService([backend])
    asked: list[int] = []
    service.on_offers_changed(lambda: asked.append(1))
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        assert await bus.offers("trans.text") == []
        assert service.note is not None
        assert "apt-get install apertium" in service.note
        assert "translate" not in names(await bus.offers())
        backend.become("de-en", note="a pack is broken")
        assert service.note == "a pack is broken"
        assert asked == [1]
        await host.refresh()
        await offered(bus, "trans.text")
        assert (await bus.call("trans.text", body("ja", "de", "en"))).output["text"] == "JA"
        (view,) = await offered(bus, "trans.text")
        assert "translate" in names([view])


def names(offers: list[Any]) -> set[str]:
    """The built-in tools that these offers make possible."""
    there = {view.capability.name for view in offers}
    return {tool.name for tool in builtin_tools() if tool.bound_capability in there}


@pytest.mark.req("TRANS-1")
async def test_the_examples_of_the_contract(mesh: Mesh) -> None:
    async with mesh.hosting(TransService([Shouting("one", "en-es")])), await mesh.bus() as bus:
        for example in contracts().get("trans.text@1.0").examples:
            work = bus.call("trans.text@1.0", request_of(example, None))
            if "error" in example:
                with pytest.raises(HearthNetError) as caught:
                    await work
                assert caught.value.code == example["error"]
                path = caught.value.details.get("path")
                assert path == example.get("path", path)
            else:
                assert missing_from_output(example["expect"], (await work).output) == []


@pytest.mark.req("TRANS-8")
async def test_two_hundred_at_once_are_answered_or_told_to_wait(mesh: Mesh) -> None:
    running, go_on = list[str](), asyncio.Event()

    class Held(Shouting):
        async def translate(self, work: TranslationWork) -> Translation:
            running.append(work.text)
            await go_on.wait()
            return await super().translate(work)

    backend = Held("one", "en-es")
    backend.places = 3
    async with mesh.hosting(TransService([backend])), await mesh.bus() as bus:
        calls = [asyncio.create_task(bus.call("trans.text", body(f"text {n}", "en", "es"))) for n in range(3)]
        await wait_for(lambda: len(running) == 3, what="all places to be taken")
        with pytest.raises(HearthNetError) as busy:
            await bus.call("trans.text", body("one more", "en", "es"), timeout_seconds=1)
        assert (busy.value.code, bool(busy.value.retry_after_ms)) == ("capacity_exceeded", True)
        assert "all 3 places of trans.text@1.0 are taken" in busy.value.message
        calls += [
            asyncio.create_task(bus.call("trans.text", body(f"text {n}", "en", "es"))) for n in range(3, 200)
        ]
        go_on.set()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert not any(isinstance(one, BaseException) for one in done[:3])
        for number, one in enumerate(done):
            if isinstance(one, HearthNetError):
                assert (one.code, bool(one.retry_after_ms)) == ("capacity_exceeded", True)
            else:
                assert not isinstance(one, BaseException)
                assert one.output["text"] == f"TEXT {number}"
