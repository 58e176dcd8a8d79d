"""How well sections of the Debian handbook are found: `make quality`, which also writes build/quality.json.

Every section's title, each of fifty questions that are only measured, and each of a hundred that were tuned
on is asked for its own section, in English and German, of our search and, over the same passages, of bm25s
with the same stemmers; in the languages it vouches for, also of our search with vectors of all-MiniLM-L6-v2,
where that is installed. MRR@10 is the mean of 1/rank of the first right passage among ten, recall@5 how often
one is among five.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

import msgspec

from hearthnet_rag.index.index import Index
from hearthnet_rag.search.search import search
from tests.quality.handbook import (
    FOLDERS,
    PACKAGE,
    Question,
    is_installed,
    practice_questions,
    runs_of,
    sections,
    title_questions,
    written_questions,
)
from tests.quality.handbook_meaning import LANGUAGES, NAME, asked, make, model
from tests.quality.handbook_pages import corpus_of, ingest

if TYPE_CHECKING:
    from hearthnet_embed.minilm.model import Model

DEPTH: Final = 10
SHOWN: Final = 5
RESULT: Final = Path(__file__).resolve().parents[2] / "build" / "quality.json"

FLOORS: Final = {
    ("en", "questions"): (0.44, 0.56),
    ("en", "practice"): (0.40, 0.53),
    ("en", "titles"): (0.95, 0.98),
    ("de", "questions"): (0.34, 0.52),
    ("de", "titles"): (0.95, 0.98),
}
"""MRR@10 and recall@5 of our search without vectors must not fall below these."""
Search = Callable[[str], Sequence[str]]
"""The texts of up to ten passages for a query, best first."""

_runs = cache(runs_of)


@dataclass(frozen=True)
class Score:
    """One way to search, one kind of question, one language."""

    way: str
    language: str
    kind: str
    questions: int
    mrr: float
    recall: float
    p50_ms: float


def scores(language: str, kinds: Iterable[str], ways: dict[str, Search], every: int = 1) -> list[Score]:
    """Each of `ways` measured by each `every`th question of a kind, `titles`, `questions` or `practice`."""
    asked = {
        "titles": title_questions(language),
        "questions": [question for question in written_questions() if question.language == language],
        "practice": [question for question in practice_questions() if question.language == language],
    }
    return [
        _score(way, language, kind, asked[kind][::every], find)
        for kind in kinds
        for way, find in ways.items()
    ]


def ours(index: Index, language: str) -> Search:
    """The library as the service calls it."""
    return lambda query: [hit.text for hit in search(index, corpus_of(language), query, DEPTH)]


def peer(index: Index, language: str) -> Search:
    """bm25s as its manual shows it, with stop words and stems of the language, over the same passages."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer({"en": "english", "de": "german"}[language])

    def tokens(texts: list[str]) -> object:
        return bm25s.tokenize(texts, stopwords=language, stemmer=stemmer, show_progress=False)

    texts, searched = zip(*_passages(index, language), strict=True)
    retriever = bm25s.BM25(corpus=list(texts))
    retriever.index(tokens(list(searched)), show_progress=False)

    def find(query: str) -> list[str]:
        found, _ = retriever.retrieve(tokens([query]), k=DEPTH, show_progress=False)
        return [str(text) for text in found[0]]

    return find


def hybrid(index: Index, language: str, read: Model) -> Search:
    """As `ours`, with the vectors that `handbook_meaning.make` made."""
    return lambda query: [
        hit.text for hit in search(index, corpus_of(language), query, DEPTH, near=asked(read, query))
    ]


def measure(kinds: Iterable[str] = ("titles", "questions", "practice")) -> list[Score]:
    """Both languages, in an index made for it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Index(Path(folder))) as index:
        found: list[Score] = []
        read = model()
        for language in FOLDERS:
            ingest(index, language)
            ways = {"bm25": ours(index, language), "bm25s": peer(index, language)}
            if read is not None and language in LANGUAGES:
                make(index, read, language)
                ways["hybrid"] = hybrid(index, language, read)
            found += scores(language, kinds, ways)
        return found


def too_low(found: Iterable[Score]) -> list[str]:
    """The scores of our search without vectors that are below their floors."""
    return [
        f"{score.kind}, {score.language}: {score.mrr:.3f} / {score.recall:.3f}, floor {floor[0]} / {floor[1]}"
        for score in found
        if score.way == "bm25" and (floor := FLOORS.get((score.language, score.kind)))
        if score.mrr < floor[0] or score.recall < floor[1]
    ]


def table(found: Sequence[Score]) -> str:
    """The scores as a Markdown table."""
    lines = ["| what is asked | way | MRR@10 | recall@5 | p50 |", "|---|---|---:|---:|---:|"]
    lines += [
        f"| {score.questions} {score.kind}, {score.language} | {score.way} "
        f"| {score.mrr:.3f} | {score.recall:.3f} | {score.p50_ms:.2f} ms |"
        for score in found
    ]
    return "\n".join([*lines, "", *_without_vectors(found)]) + "\n"


def _without_vectors(found: Sequence[Score]) -> list[str]:
    """Why a language has no line with vectors."""
    measured = {score.language for score in found if score.way == "hybrid"}
    reasons = {
        True: f"{NAME} is not installed (make embedding).",
        False: f"{NAME} does not vouch for it, so the service makes none.",
    }
    return [
        f"No vectors in {language}: {reasons[language in LANGUAGES]}"
        for language in FOLDERS
        if language not in measured
    ]


def _score(way: str, language: str, kind: str, asked: Sequence[Question], find: Search) -> Score:
    by_id = {section.id: section for section in sections(language)}
    ranks: list[int | None] = []
    seconds: list[float] = []
    for question in asked:
        started = time.perf_counter()
        texts = find(question.text)
        seconds.append(time.perf_counter() - started)
        section = by_id[question.section]
        ranks.append(next((rank for rank, text in enumerate(texts, 1) if section.is_in(_runs(text))), None))
    return Score(
        way, language, kind, len(asked),
        mrr=fmean(1 / rank if rank else 0.0 for rank in ranks),
        recall=fmean(rank is not None and rank <= SHOWN for rank in ranks),
        p50_ms=median(seconds) * 1000,
    )  # fmt: skip


def _passages(index: Index, language: str) -> list[tuple[str, str]]:
    """Each passage as it is shown, and with its title and headings before it."""
    with index.reading() as connection:
        rows = connection.execute(
            """
            SELECT title, heading, text FROM chunks JOIN documents ON documents.id = document
            JOIN corpora ON corpora.id = corpus WHERE corpora.name = ? ORDER BY chunks.id
            """,
            (corpus_of(language),),
        ).fetchall()
    return [
        (row["text"], "\n".join(filter(None, (row["title"], row["heading"], row["text"])))) for row in rows
    ]


def main() -> int:
    """Prints the table and writes the figures."""
    if not is_installed():
        sys.stderr.write(f"there is no handbook here: install the Debian package {PACKAGE}\n")
        return 1
    found = measure()
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode([asdict(score) for score in found])) + b"\n")
    sys.stdout.write(table(found))
    low = too_low(found)
    sys.stderr.write("".join(f"below its floor: {line}\n" for line in low))
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
