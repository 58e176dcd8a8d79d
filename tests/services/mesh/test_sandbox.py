"""The wall behind the gates: it holds alone. Here no gate is asked."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet_mesh.query import grammar, sandbox, validator
from hearthnet_mesh.query.sandbox import SECONDS
from hearthnet_mesh.query.views import VIEWS
from tests.services.mesh.queries import BINDINGS, GOOD, WRITING, tables

LEFT = dict.fromkeys(
    ("delete", "insert", "replace", "update", "drop", "create", "alter", "analyze"), "readonly database"
) | dict.fromkeys(("attach", "vacuum"), "attached databases")
"""Why a statement is refused where no authorizer is; the others change nothing outside of their query."""
MILLION = "select count(*) from calls a, calls b, calls c"


def refusal(sql: str, **options: Any) -> HearthNetError:
    bound = {name: value for name, value in BINDINGS.items() if f":{name}" in sql}
    with pytest.raises(HearthNetError) as caught:
        sandbox.execute(sql, bound, tables(), 50, **options)
    assert caught.value.code == "bad_request"
    return caught.value


@pytest.mark.req("MESH-23")
@pytest.mark.parametrize("sql", WRITING)
def test_without_any_gate_the_wall_refuses_what_is_no_reading(
    sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(sql).details["gate"] == "wall"
    assert not list(tmp_path.iterdir())


@pytest.mark.req("MESH-23")
@pytest.mark.parametrize("sql", [sql for sql in WRITING if not sql.startswith(("select", "with"))])
def test_without_the_authorizer_query_only_and_the_empty_neighbourhood_are_left(
    sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox._Guard, "authorize", lambda *given: sqlite3.SQLITE_OK)
    rows, words = tables(), LEFT.get(sql.split()[0])
    for _ in range(2):  # nothing that one query did is there for the next one
        with (
            contextlib.suppress(HearthNetError)
            if words is None
            else pytest.raises(HearthNetError, match=words)
        ):
            sandbox.execute(sql, {}, rows, 50)
        assert sandbox.execute("select count(*) from posts", {}, rows, 1).rows == [[3]]
    assert not list(tmp_path.iterdir())


@pytest.mark.req("MESH-23")
def test_a_function_is_allowed_by_its_name_in_sqlite() -> None:
    assert {"load_extension", "randomblob", "printf", "replace"}.isdisjoint(grammar.AT_THE_WALL)
    assert "load_extension" in refusal("select load_extension(:x)").message


@pytest.mark.req("MESH-24")
def test_time_and_steps_are_bounded() -> None:
    heavy = tables(calls=1000)
    for options, gate in (({"seconds": 0.0}, "time"), ({"steps": 10_000}, "steps")):
        with pytest.raises(HearthNetError) as caught:
            sandbox.execute(MILLION, {}, heavy, 1, **options)
        assert caught.value.details["gate"] == gate
        assert "read fewer rows" in caught.value.message
    assert SECONDS == 1.0
    with pytest.raises(HearthNetError) as caught:
        sandbox.execute(MILLION, {}, heavy, 1, seconds=SECONDS)
    assert caught.value.details["gate"] in {"time", "steps"}


@pytest.mark.req("MESH-24")
def test_memory_is_bounded() -> None:
    sql = "select a.body || b.body || c.body as x from posts a, posts b, posts c order by x"
    with pytest.raises(HearthNetError) as caught:
        sandbox.execute(sql, {}, tables(posts=200), 1, seconds=30, steps=10**9)
    assert caught.value.details["gate"] == "memory"


@pytest.mark.req("MESH-24")
@pytest.mark.parametrize(
    "twice", ["select x.node from {0} x, {0} y", "select node from {0} union all select node from {0}"]
)
def test_copies_of_copies_end_at_the_authorizer_or_at_the_memory(twice: str) -> None:
    def copied(times: int) -> str:
        steps = ", ".join(f"a{step + 1} as ({twice.format(f'a{step}')})" for step in range(times))
        return f"with a0 as (select node from nodes), {steps} select node from a{times}"

    assert sandbox.execute(copied(4), {}, tables(), 50).rows
    for times, gate, words in ((15, "wall", "so much at once"), (29, "memory", "too much memory")):
        refused = refusal(copied(times), seconds=60)
        assert (refused.details["gate"], words in refused.message) == (gate, True)


@pytest.mark.req("MESH-24")
def test_rows_and_bytes_are_bounded_and_it_is_said() -> None:
    rows = tables(posts=200)
    by_rows = sandbox.execute("select title from posts order by lamport", {}, rows, 2)
    assert (by_rows.columns, by_rows.rows, by_rows.truncated) == (["title"], [["title 0"], ["title 1"]], True)
    assert not sandbox.execute("select title from posts", {}, rows, 200).truncated
    by_bytes = sandbox.execute("select body from posts", {}, rows, 500)
    assert by_bytes.truncated
    assert 4000 * len(by_bytes.rows) <= sandbox.MOST_BYTES < 4000 * (len(by_bytes.rows) + 1)


@pytest.mark.req("MESH-24")
def test_every_value_is_one_that_json_carries() -> None:
    result = sandbox.execute(
        "select 9223372036854775807, 1e999, -1e999, x'00ff', 1/0, 1.5, cast(x'ff' as text)", {}, {}, 1
    )
    assert result.rows == [["9223372036854775807", None, None, "00ff", None, 1.5, "\ufffd"]]


@pytest.mark.req("MESH-21")
def test_what_sqlite_does_not_take_is_said_in_its_words() -> None:
    assert "no such column: nobody" in refusal("select nobody from posts").message
    assert "integer overflow" in refusal("select abs(-9223372036854775807 - 1)").message


@pytest.mark.req("MESH-20")
@pytest.mark.parametrize("sql", [sql for sql in GOOD if "now" not in sql])
def test_the_same_query_has_the_same_answer(sql: str) -> None:
    values = validator.validate(sql, BINDINGS).values
    assert sandbox.execute(sql, values, tables(), 50) == sandbox.execute(sql, values, tables(), 50)


VOCABULARY = """
select from where and or not in as join left on group by order limit union all with recursive distinct insert
into values delete update set drop table create pragma attach vacuum begin explain analyze replace ( ) , ; .
* = < > || + - / % 'a' "b" x'00' 1 -1 1e999 9223372036854775807 :x ? @x $x null case when then else end cast
text blob over partition filter count(*) max( load_extension( randomblob( json_each( group_concat(
sqlite_master pragma_table_info rowid exists between like glob match collate nocase -- /* */ posts nodes
calls offers runs title node ms capability a b c
"""
WORDS = st.sampled_from(VOCABULARY.split())
SQL = st.one_of(
    st.lists(WORDS, max_size=30).map(" ".join),
    st.lists(WORDS, max_size=30).map(lambda words: "select " + " ".join(words)),
    st.tuples(st.sampled_from(GOOD + WRITING), st.integers(0, 80), WORDS).map(
        lambda parts: f"{parts[0][: parts[1]]} {parts[2]} {parts[0][parts[1] :]}"
    ),
    st.tuples(st.sampled_from(GOOD + WRITING), st.integers(0, 60), st.integers(1, 20)).map(
        lambda parts: parts[0][: parts[1]] + parts[0][parts[1] + parts[2] :]
    ),
    st.text(max_size=60),
)  # fmt: skip


def outcome(database: sqlite3.Connection, sql: str, *, gated: bool) -> sandbox.QueryResult | HearthNetError:
    """As `wall.run` does it, past the gates where they are not wanted, in a database that stays open."""
    values: Mapping[str, Any] = {"x": "a"}
    try:
        if gated:
            values = validator.validate(sql, BINDINGS).values
        guard = sandbox._Guard(5.0, 3_000_000)
        sandbox._close_in(database, guard)
        return sandbox._answer(database, guard, sql, values, 20)
    except HearthNetError as error:
        return error


@pytest.mark.req("MESH-25")
@settings(max_examples=600)
@given(sql=SQL, gated=st.booleans())
def test_whatever_is_asked_nothing_changes_and_nothing_breaks(sql: str, gated: bool) -> None:
    """An answer or a refusal that names its gate, and never anything else."""
    database = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    with contextlib.closing(database):
        sandbox._fill(database, tables())
        before = database.total_changes
        found = outcome(database, sql, gated=gated)
        database.set_authorizer(None)
        names = {name for (name,) in database.execute("select name from sqlite_master")}
        assert (database.total_changes, names) == (before, set(VIEWS))
        assert [row[1] for row in database.execute("pragma database_list")] == ["main"]
    if isinstance(found, HearthNetError):
        assert (found.code, bool(found.details["gate"])) == ("bad_request", True)
    else:
        assert len(found.rows) <= 20
