"""How often the bare question finds the right document: `python -m tests.quality.bare_questions [FILE]`.

FILE is `questions` (the twenty that are only ever measured, the default) or `practice` (those to tune on). A
question counts as answered where a passage of its document is among the first three.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from hearthnet_rag.index.index import Index
from hearthnet_rag.ingest.document_import import CORPUS, bring_up_to_date, starter_files
from hearthnet_rag.search.search import search

SOURCES: Final = 3


@dataclass(frozen=True)
class Outcome:
    """What a question found: file names without their ending, best first, and how long that took."""

    question: str
    document: str
    found: list[str]
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the document that a person would want is among them."""
        return self.document in self.found


@dataclass(frozen=True)
class Report:
    """All questions of one file, and how long it took to read the corpus."""

    outcomes: list[Outcome]
    reading_seconds: float

    @property
    def right(self) -> int:
        """How many questions found their document."""
        return sum(outcome.right for outcome in self.outcomes)

    def __str__(self) -> str:
        lines = [
            f"not found: {outcome.question}\n    wanted {outcome.document}, found {', '.join(outcome.found)}"
            for outcome in self.outcomes
            if not outcome.right
        ]
        milliseconds = median(outcome.seconds for outcome in self.outcomes) * 1000
        return "\n".join([
            *lines,
            f"{self.right} of {len(self.outcomes)} have the right document among the first {SOURCES}; "
            f"query p50 {milliseconds:.2f} ms, corpus read in {self.reading_seconds:.2f} s",
        ])  # fmt: skip


def measure(name: str) -> Report:
    """Asks each question of `<name>.toml` of an index made for it."""
    file = Path(__file__).with_name(f"{name}.toml")
    questions = tomllib.loads(file.read_text(encoding="utf-8"))["question"]
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Index(Path(folder))) as index:
        started = time.perf_counter()
        bring_up_to_date(index, starter_files(), lambda stage, current, total: None)
        reading_seconds = time.perf_counter() - started
        outcomes = [_ask(index, question["text"], question["document"]) for question in questions]
    return Report(outcomes, reading_seconds)


def _ask(index: Index, text: str, document: str) -> Outcome:
    started = time.perf_counter()
    hits = search(index, CORPUS, text, SOURCES)
    seconds = time.perf_counter() - started
    return Outcome(text, document, [Path(hit.metadata["path"]).stem for hit in hits], seconds)


if __name__ == "__main__":
    sys.stdout.write(f"{measure(sys.argv[1] if len(sys.argv) > 1 else 'questions')}\n")
