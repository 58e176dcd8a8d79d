"""SIGKILL in the middle of ingestions: what was confirmed is there, and nothing is there by halves."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hearthnet.core.canonical_json import content_hash
from hearthnet_rag.index.database import FILE
from hearthnet_rag.index.index import Index
from hearthnet_rag.index.journal import Record
from hearthnet_rag.library import Library
from tests.helpers.processes import child_environment
from tests.services.rag.made import pdf

PARAGRAPH = "Keep the lid on the barrel so that no leaves and no mosquitoes get in.\n\n"
CHILD = f"""
import sys
from pathlib import Path
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.ids import new_ulid
from hearthnet_rag.index.journal import Record
from hearthnet_rag.library import Library

library = Library(Path(sys.argv[1]))
pause_in = int(sys.argv[2])


def pause() -> None:
    sys.stdout.write("in the middle\\n")
    sys.stdout.flush()
    sys.stdin.read()


def pause_at_passage(number: int) -> None:
    writer = library.index._writer
    writer.create_function("pause", 0, pause)
    writer.execute(
        "CREATE TEMP TRIGGER middle BEFORE INSERT ON chunks "
        f"WHEN new.number = {{number}} BEGIN SELECT pause(); END"
    )


for number in range(100_000):
    if number == pause_in:
        pause_at_passage(10)
    data = (f"# Note {{number}}\\n\\n" + {PARAGRAPH!r} * 2000).encode()
    record = Record("home", content_hash(data), new_ulid(), "text/markdown")
    sys.stdout.write(library.ingest(record, data).made.doc_cid + "\\n")
    sys.stdout.flush()
"""


def start(folder: Path, pause_in: int = -1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(folder), str(pause_in)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=child_environment())


def ingest_and_kill(folder: Path, after: int) -> set[str]:
    """Kills a process that ingests when it has confirmed `after` documents and is at the next one."""
    with start(folder) as child:
        assert child.stdout is not None
        confirmed = {child.stdout.readline().strip() for _ in range(after)}
        child.send_signal(signal.SIGKILL)
        confirmed |= {line.strip() for line in child.stdout if line.endswith("\n")}
    return confirmed


def check_whole(index: Index) -> set[str]:
    """Each document has all its passages, each of them can be found, and there are no others."""
    with index.reading() as connection:
        documents = connection.execute(
            "SELECT doc_cid, documents.chunks AS said, count(chunks.id) AS stored FROM documents "
            "LEFT JOIN chunks ON document = documents.id GROUP BY documents.id"
        ).fetchall()
        found = connection.execute(
            "SELECT count(*) FROM passages_1 WHERE passages_1 MATCH 'barrel'"
        ).fetchone()[0]
        stored = connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
    assert all(row["said"] == row["stored"] > 1 for row in documents)
    assert found == stored == sum(row["said"] for row in documents)
    return {row["doc_cid"] for row in documents}


@pytest.mark.req("RAG-6")
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_kill_leaves_nothing_by_halves(tmp_path: Path, after: int) -> None:
    confirmed = ingest_and_kill(tmp_path, after)
    assert len(confirmed) >= after
    assert (tmp_path / FILE).exists()
    with contextlib.closing(Index(tmp_path)) as index:
        assert index.moved_aside is None
        present = check_whole(index)
    assert confirmed <= present
    assert len(present) <= len(confirmed) + 1
    library = Library(tmp_path)
    assert len(library.lost()) <= 1
    library.close()


@pytest.mark.req("RAG-6")
def test_a_kill_inside_a_transaction_undoes_it(tmp_path: Path) -> None:
    with start(tmp_path, pause_in=1) as child:
        assert child.stdout is not None
        confirmed = child.stdout.readline().strip()
        assert child.stdout.readline() == "in the middle\n"
        child.send_signal(signal.SIGKILL)
    with contextlib.closing(Index(tmp_path)) as index:
        assert check_whole(index) == {confirmed}


PAGES = 400
CHANGING = """
import sys
from pathlib import Path
from hearthnet.core.canonical_json import content_hash
from hearthnet_rag.index.journal import Record
from hearthnet_rag.library import Library

library = Library(Path(sys.argv[1]))
what, where = sys.argv[2], sys.argv[3]
data = [Path(path).read_bytes() for path in sys.argv[4:]]


def pause():
    sys.stdout.write("in the middle\\n")
    sys.stdout.flush()
    sys.stdin.read()


def told(stage, current, total):
    if stage == where and current:
        pause()


def asked(text):
    return Record("home", content_hash(text), "event", "application/pdf", metadata={"path": "book.pdf"})


def pause_at(statement):
    writer = library.index._writer
    writer.create_function("pause", 0, pause)
    writer.execute(f"CREATE TEMP TRIGGER middle {statement} BEGIN SELECT pause(); END")


library.ingest(asked(data[0]), data[0])
if where == "sql":
    adding = "BEFORE INSERT ON chunks WHEN new.number = 5"
    pause_at("BEFORE DELETE ON documents" if what == "remove" else adding)
if what == "remove":
    library.remove("home", asked(data[0]).doc_cid)
else:
    library.ingest(asked(data[1]), data[1], told, update=True)
"""


def book(word: str) -> bytes:
    lines = "\n".join(f"Keep the lid of the {word} barrel closed, line {line}." for line in range(20))
    return pdf([f"Page {number}\n{lines}" for number in range(PAGES)])


@pytest.mark.req("RAG-6", "RAG-32", "RAG-33")
@pytest.mark.parametrize(
    ("what", "where", "after"),
    [
        ("update", "reading pages", ["old"]),  # nothing was noted yet
        ("update", "sql", ["new"]),  # it was, and the next start makes up for it
        ("remove", "sql", []),
    ],
)
def test_a_kill_in_a_book_of_pages_leaves_one_version(
    tmp_path: Path, what: str, where: str, after: list[str]
) -> None:
    books = {name: book(name) for name in ("old", "new")}
    for name, data in books.items():
        (tmp_path / name).write_bytes(data)
    folder = tmp_path / "rag"
    command = [
        sys.executable,
        "-c",
        CHANGING,
        str(folder),
        what,
        where,
        *(str(tmp_path / name) for name in books),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=child_environment()) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "in the middle\n"
        child.send_signal(signal.SIGKILL)
    with contextlib.closing(Index(folder)) as index:
        assert check_whole(index) == {content_hash(books["old"])}  # nothing of it is visible
    library = Library(folder)
    for record in library.lost():
        library.restore(record, books["new"])
    library.clear()
    library.close()
    with contextlib.closing(Index(folder)) as index:
        assert check_whole(index) == {content_hash(books[name]) for name in after}


EMBEDDING = """
import sys
from pathlib import Path
from hearthnet_rag.index.index import Index
from hearthnet_rag.index.journal import Record
from hearthnet_rag.index.vectors import pending

index, pause_in = Index(Path(sys.argv[1])), int(sys.argv[2])


def pause():
    sys.stdout.write("in the middle\\n")
    sys.stdout.flush()
    sys.stdin.read()


index._writer.create_function("pause", 0, pause)
for batch in range(100):
    with index.reading() as connection:
        found = pending(connection, "toy", ["en"], None, 4)
    if batch == pause_in:  # two of its passages have their vectors, the third has its first one
        third = found[2].chunk
        index._writer.execute(
            "CREATE TEMP TRIGGER middle BEFORE INSERT ON vectors "
            f"WHEN new.chunk = {third} AND new.part = 1 BEGIN SELECT pause(); END"
        )
    index.keep_vectors("toy", [(passage, [[1.0, 0.5], [0.5, 1.0]]) for passage in found])
    if not found:
        break
"""


def vectors_of(folder: Path) -> list[int]:
    """How many vectors each passage has, in order."""
    with contextlib.closing(Index(folder)) as index, index.reading() as connection:
        rows = connection.execute(
            "SELECT count(vectors.chunk) AS made FROM chunks LEFT JOIN vectors ON chunk = chunks.id "
            "GROUP BY chunks.id ORDER BY chunks.id"
        )
        return [row["made"] for row in rows]


@pytest.mark.req("RAG-6", "RAG-53")
@pytest.mark.parametrize("batch", [0, 2])
def test_a_kill_while_vectors_are_made_leaves_whole_ones_and_the_next_start_makes_the_rest(
    tmp_path: Path, batch: int
) -> None:
    text = f"+++\nlanguage = 'en'\n+++\n# Barrels\n\n{PARAGRAPH * 800}".encode()
    library = Library(tmp_path)
    count = library.ingest(Record("home", content_hash(text), "event", "text/markdown"), text).made.chunks
    library.close()
    assert count > 12
    command = [sys.executable, "-c", EMBEDDING, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, str(batch)], stdin=pipe, stdout=pipe, text=True, env=child_environment()
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "in the middle\n"
        child.send_signal(signal.SIGKILL)
    assert vectors_of(tmp_path) == [2] * (4 * batch) + [0] * (count - 4 * batch)
    subprocess.run([*command, "-1"], check=True, env=child_environment(), timeout=60)
    assert vectors_of(tmp_path) == [2] * count
