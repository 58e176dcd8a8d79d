"""How often the built-in model's own query finds the right document, beside the bare question.

    python -m tests.quality.measure_queries [questions.toml]

Prints a line a question: the query, and at which place the right document stands among the sources found
with the query and with the question itself (a dash: not among them); then the totals for the first three
places.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.core.config import LlmConfig
from hearthnet_llm.builtin.backend import BuiltinBackend
from hearthnet_llm.builtin.engine import Engine
from hearthnet_llm.builtin.model_file import ModelLocator
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import ChatRequest, Message, Named, Tool
from hearthnet_rag.index.index import Index
from hearthnet_rag.ingest.document_import import CORPUS, bring_up_to_date, starter_files
from hearthnet_rag.search.search import search

QUESTIONS: Final = Path(__file__).parent / "questions.toml"
FIRST: Final = 3
PASSAGES: Final = 5
SEARCH: Final = Tool(
    name="search_corpus",
    description="Searches the documents of a corpus for passages.",
    parameters_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": 4000,
                "description": "Key words to search for",
            },
            "k": {"type": "integer", "minimum": 1, "maximum": 20},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


class Question(msgspec.Struct, frozen=True):
    """A question, and the file name (without .md) of the document that answers it."""

    text: str
    document: str


class Measured(msgspec.Struct, frozen=True):
    """One question's outcome; a place counts from 1, None is not among the sources."""

    question: Question
    query: str
    place: int | None
    bare_place: int | None
    seconds: float

    def __str__(self) -> str:
        return f"{self.place or '-':>3} {self.bare_place or '-':>5}  {self.question.document:26} {self.query}"


def questions(file: Path = QUESTIONS) -> list[Question]:
    """The questions of a file."""
    return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8"))["question"], list[Question])


def starter_index(folder: Path) -> Index:
    """The starter corpus, indexed in `folder` as the rag service does it."""
    index = Index(folder)
    bring_up_to_date(index, starter_files(), lambda stage, current, total: None)
    return index


def place(index: Index, query: str, document: str) -> int | None:
    """Where `document` stands among the sources of a search with the default number of passages."""
    hits = search(index, CORPUS, query, PASSAGES)
    sources = list(dict.fromkeys(str(hit.metadata["path"]).removesuffix(".md") for hit in hits))
    return sources.index(document) + 1 if document in sources else None


async def query_of(backend: BuiltinBackend, text: str) -> str:
    """What the model wants to search for when a person asks `text`."""
    request = ChatRequest(
        messages=[Message(role="user", content=text)],
        tools=[SEARCH],
        tool_choice=Named(SEARCH.name),
        max_tokens=256,
    )
    calls = [frame async for frame in backend.stream(request) if isinstance(frame, ToolCall)]
    return str(calls[0].arguments["query"])


async def measure(backend: BuiltinBackend, index: Index, asked: Sequence[Question]) -> list[Measured]:
    """Each question, asked once."""
    outcome: list[Measured] = []
    for question in asked:
        started = time.monotonic()
        query = await query_of(backend, question.text)
        seconds = time.monotonic() - started
        found = place(index, query, question.document), place(index, question.text, question.document)
        outcome.append(Measured(question, query, *found, seconds))
    return outcome


def found(places: Sequence[int | None]) -> int:
    """How many of `places` are among the first three."""
    return sum(1 for at in places if at is not None and at <= FIRST)


async def _main(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(starter_index(Path(folder))) as index:
        box = ModelLocator(LlmConfig(), Path(folder) / "model-checked.json")
        file = box.check()
        profile = box.profile(file)
        backend = BuiltinBackend(Engine(box.load(file), profile.max_concurrent, profile.ctx), profile)
        outcome = await measure(backend, index, questions(file))
        await backend.aclose()
    model, bare = found([one.place for one in outcome]), found([one.bare_place for one in outcome])
    seconds = sum(one.seconds for one in outcome) / len(outcome)
    lines = ["own  bare  document                   query", *(str(one) for one in outcome)]
    counts = f"{model} with the model's query, {bare} with the bare question"
    lines.append(f"among the first {FIRST} of {len(outcome)}: {counts}")
    lines.append(f"{seconds:.2f} s a query")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]) if len(sys.argv) > 1 else QUESTIONS))
