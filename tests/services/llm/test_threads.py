"""Transcripts that a provider keeps: joined, bounded, each principal's own, over restarts and damage."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm import threads as store
from hearthnet_llm.interface.content_parts import Citation, ServerCallPart, TextPart, ThinkingPart
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Done,
    ReasoningBlock,
    ServerToolEvent,
    TextDelta,
    ToolCall,
)
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.responses.response_builder import as_message
from hearthnet_llm.threads import RETENTION_MS, Threads, ThreadsFile

pytestmark = pytest.mark.req("LLM-50")
USER, ANSWER = Message("user", "Where do otters live?"), Message("assistant", "By the river.")


class Clock:
    """A time that a test sets."""

    now = 1_000_000

    def __call__(self) -> int:
        return self.now


def asked(text: str, length: int | None = None, thread: str | None = "t") -> ChatRequest:
    """What is new in a thread."""
    return ChatRequest(messages=[Message("user", text)], thread_id=thread, thread_length=length)


async def begun(threads: Threads, principal: str = "alice") -> int | None:
    """A thread of two messages."""
    return await threads.keep(await threads.whole(principal, asked("Where do otters live?", 0)), ANSWER)


@pytest.mark.asyncio
async def test_the_next_turn_is_joined_to_what_is_kept_and_no_model_sees_the_thread(tmp_path: Path) -> None:
    threads = Threads(tmp_path)
    assert await begun(threads) == 2
    for length in (2, None):
        turn = await threads.whole("alice", asked("And beavers?", length))
        assert turn.request == ChatRequest(messages=[USER, ANSWER, Message("user", "And beavers?")])
    assert await threads.keep(turn, Message("assistant", "There too.")) == 4
    await threads.close()
    again = Threads(tmp_path)
    assert len((await again.whole("alice", asked("And frogs?", 4))).request.messages) == 5
    await again.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("principal", "thread", "length", "held"),
    [("bob", "t", 2, 0), ("alice", "u", 2, 0), ("alice", "t", 4, 2), ("bob", "t", None, 0)],
    ids=["another principal", "another thread", "another length", "another principal, no length"],
)
async def test_what_is_not_held_is_missing(
    tmp_path: Path, principal: str, thread: str, length: int | None, held: int
) -> None:
    threads = Threads(tmp_path)
    await begun(threads)
    with pytest.raises(HearthNetError, match="send the whole conversation, with thread_length 0") as missing:
        await threads.whole(principal, asked("And?", length, thread))
    assert missing.value.code == "thread_missing"
    assert missing.value.details == {"thread_id": thread, "thread_length": held}
    await threads.close()


@pytest.mark.asyncio
async def test_a_length_without_a_thread_is_refused_and_a_request_of_no_thread_is_left_alone(
    tmp_path: Path,
) -> None:
    threads = Threads(tmp_path)
    with pytest.raises(HearthNetError) as refused:
        await threads.whole("alice", asked("And?", 2, None))
    assert refused.value.details == {"path": "/input/thread_length"}
    turn = await threads.whole("alice", asked("Hello", None, None))
    assert turn.request.messages == [Message("user", "Hello")]
    assert await threads.keep(turn, ANSWER) is None
    assert not (tmp_path / store.FILE).exists()


@pytest.mark.asyncio
async def test_of_two_turns_at_once_one_is_kept(tmp_path: Path) -> None:
    threads = Threads(tmp_path)
    await begun(threads)
    one, two = [await threads.whole("alice", asked(text, 2)) for text in ("One?", "Two?")]
    kept = await asyncio.gather(threads.keep(one, ANSWER), threads.keep(two, ANSWER))
    assert sorted(kept, key=str) == [4, None]
    await threads.close()


@pytest.mark.asyncio
async def test_places_are_told_as_the_caller_counts_them(tmp_path: Path) -> None:
    threads = Threads(tmp_path)
    await begun(threads)
    turn = await threads.whole("alice", asked("And?", 2))
    told = []
    for path in ("/input/messages/2/content", "/input/messages/1"):
        with pytest.raises(HearthNetError) as refused, turn.places():
            raise HearthNetError("bad_request", f"{path}: no", details={"path": path})
        told.append((refused.value.message, refused.value.details["path"]))
    first = "/input/messages/0/content"
    assert told == [(f"{first}: no", first), ("/input/messages: no", "/input/messages")]
    other = HearthNetError("timeout", "late")
    with pytest.raises(HearthNetError) as passed, turn.places():
        raise other
    assert passed.value is other
    await threads.close()


def test_after_24_hours_it_is_gone_from_the_disk(tmp_path: Path) -> None:
    clock = Clock()
    kept = ThreadsFile(tmp_path, clock)
    kept.write("alice", "old", b"a secret", None)
    clock.now += RETENTION_MS - 1
    assert kept.read("alice", "old") is not None
    clock.now += 1
    assert kept.read("alice", "old") is None
    kept.sweep()
    kept.close()
    assert b"a secret" not in (tmp_path / store.FILE).read_bytes()


def test_it_is_bounded_and_what_was_used_last_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_THREADS", 3)
    monkeypatch.setattr(store, "MOST_THREAD_BYTES", 10)
    monkeypatch.setattr(store, "MOST_BYTES", 24)
    clock = Clock()
    kept = ThreadsFile(tmp_path, clock)

    def write(principal: str, thread: str, size: int) -> bool:
        clock.now += 1
        return kept.write(principal, thread, b"x" * size, kept.read(principal, thread))

    def there(principal: str) -> list[str]:
        return [thread for thread in "abcd" if kept.read(principal, thread) is not None]

    assert all(write("alice", thread, 2) for thread in "abc")
    assert write("alice", "a", 3)
    assert write("alice", "d", 2)
    assert there("alice") == ["a", "c", "d"]
    assert not write("alice", "d", 11)
    assert there("alice") == ["a", "c"]
    assert all(write("bob", thread, 10) for thread in "ab")
    assert (there("alice"), there("bob")) == (["a"], ["a", "b"])
    kept.close()


@pytest.mark.asyncio
async def test_a_damaged_file_is_moved_aside_and_one_that_cannot_be_written_only_costs_the_memory(
    tmp_path: Path,
) -> None:
    (tmp_path / store.FILE).write_bytes(b"not a database " * 100)
    threads = Threads(tmp_path)
    assert await begun(threads) == 2
    await threads.close()
    assert (tmp_path / store.FILE).stat().st_mode & 0o077 == 0
    assert any(".damaged-" in name for name in os.listdir(tmp_path))

    nowhere = Threads(tmp_path / "nowhere")
    assert await begun(nowhere) is None
    with pytest.raises(
        HearthNetError, match=r"nowhere/threads\.db: unable to open database file; see that"
    ) as failed:
        await nowhere.whole("alice", asked("And?", 2))
    assert failed.value.code == "internal_error"


def test_an_answer_becomes_the_message_that_a_caller_would_send_back() -> None:
    call, thought = ToolCall("c1", "search", {"q": "x"}), ThinkingPart("Hm", signature="s")
    spoken = as_message(
        [ReasoningBlock(thought), TextDelta("I "), TextDelta("look."), call, Done("tool_calls", 1, 1)]
    )
    assert spoken == Message("assistant", "I look.", [call], thinking=[thought])

    cited, served = Citation("web", url="https://example.org"), ServerCallPart("web_search", "s1")
    event = CitationEvent(cited)
    spoken = as_message([ServerToolEvent(served), TextDelta("So."), event, event, TextDelta(" Yes.")])
    assert spoken.content == [served, TextPart("So.", citations=[cited, cited]), TextPart(" Yes.")]


def test_a_turn_that_cannot_be_written_whole_is_not_written_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ThreadsFile(tmp_path)
    assert kept.write("alice", "t", b"one", None)
    monkeypatch.setattr(store, "MOST_THREADS", "not a number")
    with pytest.raises(HearthNetError) as failed:
        kept.write("alice", "t", b"two", kept.read("alice", "t"))
    assert failed.value.code == "internal_error"
    row = kept.read("alice", "t")
    assert row is not None
    assert row.messages == b"one"
    kept.close()
