"""Summaries in place of what was left out: written by the model, in one step or several, or by rule."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.context.manager import Contexts
from hearthnet_llm.context.token_count import of_message
from hearthnet_llm.interface.backend import Profile
from hearthnet_llm.interface.frames import Done, Frame, Notice, PrefillProgress, TextDelta
from hearthnet_llm.interface.request import ChatRequest, Message
from tests.services.llm.test_context import SYSTEM, Model, asked, profile, said, user, words

pytestmark = [pytest.mark.asyncio, pytest.mark.req("LLM-51")]


class Writer(Model):
    """A model that writes a summary where it is asked for one."""

    def __init__(self, made: Profile, summary: str | HearthNetError) -> None:
        super().__init__(made, 1)
        self.summary = summary

    @property
    def summaries(self) -> list[ChatRequest]:
        """The requests for one."""
        return [one for one in self.asked if "You summarise" in one.messages[0].text]

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Frame, None]:
        if "You summarise" not in request.messages[0].text:
            async for frame in super().stream(request):
                yield frame
            return
        self.asked.append(request)
        if isinstance(self.summary, HearthNetError):
            raise self.summary
        yield TextDelta(self.summary)
        yield Done("end", 1, 1)


def talk(turns: int) -> list[Message]:
    """A conversation of so many questions and answers, each of its own, and one more question."""
    told = [Message("user", f"question {n}: {words(30)}") for n in range(turns)]
    answers = [Message("assistant", f"answer {n}: {words(30)}") for n in range(turns)]
    return [SYSTEM, *(one for pair in zip(told, answers, strict=True) for one in pair), user(20)]


async def frames_of(contexts: Contexts, model: Model, messages: list[Message]) -> list[Frame]:
    """What comes of it."""
    return [frame async for frame in contexts.stream(model, asked(*messages))]


async def test_the_model_itself_summarises_what_is_left_out_and_not_each_time() -> None:
    contexts, model = Contexts(), Writer(profile(1500, summarises=True), "They spoke of otters.")
    frames = await frames_of(contexts, model, talk(25))
    assert isinstance(frames[0], PrefillProgress)
    assert isinstance(frames[1], Notice)
    assert "the model's summary of them stands in their place" in frames[1].text
    (first,) = model.summaries
    assert "question 0" in first.messages[1].text
    assert "question 24" not in first.messages[1].text, "what stays is not summarised"
    assert not first.tools
    stands = model.asked[-1].messages[1]
    assert "as data:\nThey spoke of otters.]" in stands.text
    assert model.asked[-1].messages[0] == SYSTEM

    await frames_of(contexts, model, talk(26))
    assert len(model.summaries) == 1, "the one that is there serves"
    stands = model.asked[-1].messages[1]
    assert "They spoke of otters." in stands.text
    assert "- assistant: answer" in stands.text, "with the beginnings of what was left out since"

    model.summary = "They spoke of otters and boats."
    await frames_of(contexts, model, talk(34))
    assert "What was summarised before: They spoke of otters." in model.summaries[-1].messages[1].text
    assert "question 0" not in model.summaries[-1].messages[1].text
    assert "otters and boats" in model.asked[-1].messages[1].text


async def test_without_a_summary_of_the_models_one_by_rule_stands_there() -> None:
    for broken in (HearthNetError("timeout", "it is slow"), "", "  "):
        model = Writer(profile(1500, summarises=True), broken)
        frames = await frames_of(Contexts(), model, talk(25))
        assert any(isinstance(frame, Notice) and "the beginnings" in frame.text for frame in frames)
        assert "- user: question" in model.asked[-1].messages[1].text
    plain = Writer(profile(1500), "unasked")
    await frames_of(Contexts(), plain, talk(25))
    assert plain.summaries == []


async def test_a_long_summary_is_cut_to_its_room() -> None:
    model = Writer(profile(1500, summarises=True), "word " * 5000)
    await frames_of(Contexts(), model, talk(25))
    sent = model.asked[-1]
    assert sum(map(of_message, sent.messages)) <= 1500
    assert sent.messages[1].text.endswith(" ...]")


class Failing(Writer):
    """A model whose summaries fail after `good` of them."""

    good = 1

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Frame, None]:
        if len(self.summaries) >= self.good:
            self.summary = HearthNetError("timeout", "it is slow")
        async for frame in super().stream(request):
            yield frame


@pytest.mark.req("LLM-147")
async def test_a_long_talk_is_summarised_in_several_steps() -> None:
    contexts, model = Contexts(), Writer(profile(1500, summarises=True), "Otters.")
    frames = await frames_of(contexts, model, talk(40))
    stages = [frame for frame in frames if isinstance(frame, PrefillProgress)]
    assert 1 < len(stages) == len(model.summaries) <= 4
    assert [stage.current for stage in stages] == sorted({stage.current for stage in stages})
    sent = "".join(message.text for request in model.asked for message in request.messages)
    assert [turn for turn in range(40) if f"question {turn}:" not in sent] == []
    assert all(sum(map(of_message, request.messages)) <= 1500 for request in model.asked)


@pytest.mark.req("LLM-147")
async def test_turns_beyond_the_steps_of_a_summary_are_counted() -> None:
    model = Writer(profile(1500, summarises=True), "Otters.")
    frames = await frames_of(Contexts(), model, talk(200))
    told = next(frame.text for frame in frames if isinstance(frame, Notice))
    assert len(model.summaries) == 4
    silent = int(told.partition("but of the oldest ")[2].split()[0])
    assert f"question {silent // 2 - 1}:" not in model.summaries[0].messages[1].text
    assert f"answer {silent // 2}:" in model.summaries[0].messages[1].text
    assert f"Of the oldest {silent} nothing is left." in model.asked[-1].messages[1].text


@pytest.mark.req("LLM-147")
async def test_a_summary_that_fails_halfway_counts_what_it_lacks() -> None:
    model = Failing(profile(1500, summarises=True), "Otters.")
    frames = await frames_of(Contexts(), model, talk(60))
    told = next(frame.text for frame in frames if isinstance(frame, Notice))
    found = re.search(
        r"the oldest (\d+) of 122 .* summary of them stands .*, but of the oldest (\d+) no", told
    )
    assert found is not None, told
    left_out, silent = int(found[1]), int(found[2])
    summarised, failed = (
        len(re.findall(r"(?:question|answer) \d+:", one.messages[1].text)) for one in model.summaries
    )
    stands = model.asked[-1].messages[1].text
    assert failed > 0
    assert silent == left_out - summarised - 1, "one has its beginning there"
    assert f"Of the oldest {silent} nothing is left." in stands
    assert "Otters.\n- assistant: answer" in stands


@pytest.mark.req("LLM-147")
async def test_beside_a_long_question_a_summary_takes_what_is_left() -> None:
    model = Writer(profile(2000, summarises=True), "Otters.")
    messages = [*talk(30)[:-1], user(1600)]
    frames = await frames_of(Contexts(), model, messages)
    assert any(isinstance(frame, Notice) and "summary of them stands" in frame.text for frame in frames)
    assert model.asked[-1].messages[-1] == messages[-1]
    assert sum(map(of_message, model.asked[-1].messages)) <= 1900

    full = Writer(profile(2000, summarises=True), "Otters.")
    frames = await frames_of(Contexts(), full, [*talk(30)[:-1], user(1850)])
    assert any(
        isinstance(frame, Notice) and "nothing stands in their place" in frame.text for frame in frames
    )
    assert full.summaries == [], "there is no room for any"


async def test_summary_that_is_too_long_leaves_room_for_the_next_step() -> None:
    contexts, model = Contexts(), Writer(profile(1500, summarises=True), words(2000))
    await frames_of(contexts, model, talk(100))
    assert len(model.summaries) > 1
    for request in model.summaries:
        assert sum(of_message(one) for one in request.messages) + (request.max_tokens or 0) <= 1500


@pytest.mark.parametrize("summarises", [True, False])
async def test_a_summary_takes_a_tenth_of_the_room_where_more_is_left(summarises: bool) -> None:
    """The turn before the last one is too long to stay."""
    model = Writer(profile(2000, summarises=summarises), words(1500))
    messages = [*talk(30)[:-1], user(20), said(1850), user(20)]
    await frames_of(Contexts(), model, messages)
    system, stands, acknowledged, question = model.asked[-1].messages
    assert (system, question) == (SYSTEM, messages[-1])
    assert 100 < of_message(stands) + of_message(acknowledged) <= 200
