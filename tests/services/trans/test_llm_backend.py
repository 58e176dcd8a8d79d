"""Models of the mesh that vouch for languages, as a backend."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm import LlmService
from hearthnet_llm.builtin.model_file import BUILT_IN
from hearthnet_trans import TransService
from hearthnet_trans.backend import TranslationWork
from hearthnet_trans.llm_backend import LlmBackend, _languages, _messages
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
SCRIPT = """
[[questions]]
asked = "Das Haus ist groß."
turns = [{ text = "The house is big." }]
[[questions]]
asked = "Nichts"
turns = [{ text = " " }]
[[questions]]
asked = "Kaputt"
turns = [{ text = "", error = "rate_limited" }]
"""
MODEL = """
[llm]
builtin = false
[[llm.scripted]]
name = "{name}"
file = "demo.toml"
languages = {languages}
"""


def set_up(folder: Path, languages: str, name: str = "demo") -> None:
    (folder / "demo.toml").write_text(SCRIPT)
    (folder / "hearthnet.toml").write_text(MODEL.format(name=name, languages=languages))


@pytest.mark.req("TRANS-11")
async def test_a_model_that_vouches_for_two_languages_translates_between_them(mesh: Mesh) -> None:
    set_up(mesh.home.path, '["de", "en"]')
    async with mesh.hosting(LlmService()), await mesh.bus() as bus:
        chat = LlmBackend(bus)
        service = TransService([chat])
        async with mesh.hosting(service) as host:
            await wait_for(lambda: chat.pairs == {("de", "en"), ("en", "de")}, 30)
            await host.refresh()
            asked = {"text": "\n Das Haus ist groß.\n\nDas Haus ist groß. \n", "from": "de", "to": "en"}
            body = {"params": {"backend": "llm"}, "input": asked}
            work = TranslationWork("Nichts", "de", "en", until=asyncio.get_running_loop().time() + 30)
            with pytest.raises(HearthNetError, match="to its end"):
                await chat.translate(work)
            with pytest.raises(HearthNetError) as caught:
                await chat.translate(TranslationWork("Kaputt", "de", "en", until=work.until))
            assert caught.value.code == "rate_limited"
            with pytest.raises(HearthNetError, match="no model vouches"):
                await chat.translate(TranslationWork("Nichts", "de", "fr"))
            short = await chat.translate(
                TranslationWork("\n Das Haus ist groß.\n", "de", "en", until=work.until)
            )
            assert (short.text, short.model, short.confidence) == ("\n The house is big.\n", "demo", 1.0)
            assert (await chat.translate(TranslationWork(" \n", "de", "en", until=work.until))).text == " \n"
            reply = await bus.call("trans.text", {**body, "input": {**asked, "text": "Das Haus ist groß."}})
            assert (reply.output["text"], reply.meta["backend"]) == ("The house is big.", "llm")


@pytest.mark.req("TRANS-11")
@pytest.mark.parametrize(("languages", "known"), [("[]", []), ('["en"]', ["en"]), ('["en", "qq"]', ["en"])])
async def test_a_model_that_vouches_for_less_is_not_asked(
    mesh: Mesh, languages: str, known: list[str]
) -> None:
    set_up(mesh.home.path, languages)
    with (mesh.home.path / "hearthnet.toml").open("a") as settings:  # a model that sorts after it
        settings.write(MODEL.format(name="other", languages='["de", "en"]').partition("false\n")[2])
    async with mesh.hosting(LlmService()), await mesh.bus() as bus:
        chat = LlmBackend(bus)
        views = {view.params["model"]: view for view in await offered(bus, "llm.chat", 2)}
        assert _languages(views["demo"]) == known
        await chat.open(lambda: None)
        try:
            await wait_for(lambda: chat.pairs, 30, "the model that vouches for two")
            assert chat.pairs == {("de", "en"), ("en", "de")}
            assert chat._model(TranslationWork("Nichts", "de", "en")) == "other"
        finally:
            await chat.close()


@pytest.mark.req("TRANS-11")
async def test_when_the_model_is_gone_so_are_its_pairs(mesh: Mesh) -> None:
    set_up(mesh.home.path, '["nds", "en", "de"]')
    changes: list[int] = []
    async with await mesh.bus() as bus:
        chat = LlmBackend(bus)
        await chat.open(lambda: changes.append(1))
        try:
            async with mesh.hosting(LlmService()):
                await wait_for(lambda: len(chat.pairs) == 6, 30)
            await wait_for(lambda: not chat.pairs, 30)
        finally:
            await chat.close()
    assert len(changes) == 2


@pytest.mark.req("TRANS-11")
async def test_the_model_in_the_box_vouches_for_no_pair() -> None:
    assert len(BUILT_IN.languages) < 2


@pytest.mark.req("TRANS-11")
async def test_the_model_is_told_the_languages_the_domain_and_not_to_obey_the_text() -> None:
    rules, text = _messages(TranslationWork("", "nds", "en", "medical"), "Moin")
    assert text == {"role": "user", "content": "Moin"}
    for words in ("from Low German (nds) into English (en)", "a medical text", "not addressed to you"):
        assert words in rules["content"]
