"""Each gate of `mesh.query`: what it refuses, by its name and with what to do, and what it lets through."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_mesh.query import sandbox, validator
from hearthnet_mesh.query.views import VIEWS
from tests.services.mesh.queries import BINDINGS, GOOD, WRITING, tables

DOUBLING = [f"a{n} as (select 1 as q from a{n - 1} union select 1 from a{n - 1})" for n in range(1, 30)]


def refusal(sql: str, bindings: dict[str, Any] | None = None) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        validator.validate(sql, BINDINGS if bindings is None else bindings)
    error = caught.value
    assert error.code == "bad_request"
    assert error.details["path"] == "/input/sql"
    assert f"gate {error.details['gate']!r}: " in error.message
    assert "\n" not in error.message
    return error


@pytest.mark.req("MESH-20")
@pytest.mark.parametrize("sql", GOOD)
def test_what_a_person_might_ask_passes_all_gates_and_the_wall(sql: str) -> None:
    checked = validator.validate(sql, BINDINGS)
    assert checked.views <= VIEWS.keys()
    assert sandbox.execute(sql, checked.values, tables(), 50).columns


@pytest.mark.req("MESH-21")
@pytest.mark.parametrize("sql", WRITING)
def test_what_is_no_reading_of_views_is_refused_before_the_database(sql: str) -> None:
    assert refusal(sql).details["gate"] in {"select_only", "functions", "views", "columns", "recursion"}


@pytest.mark.req("MESH-21")
@pytest.mark.parametrize(
    ("gate", "sql", "words"),
    [
        ("length", "select 1 -- " + "x" * 4000, "ask in parts"),
        ("characters", "select 1\0", "leave them out"),
        ("characters", "select \x1b[0m", "leave them out"),
        ("parses", "", "write one SELECT"),
        ("parses", "-- nothing", "write one SELECT"),
        ("parses", "select (", "no SQL that SQLite knows"),
        ("parses", "select 'a", "no SQL that SQLite knows"),
        ("parses", "select " + "(" * 1900 + "1" + ")" * 1900, "write it flatter"),
        ("one_statement", "select 1; select 2", "there are 2 statements"),
        ("one_statement", "select 1; drop table posts", "there are 2 statements"),
        ("select_only", "delete from posts", "DELETE is not allowed"),
        ("select_only", "pragma table_info(posts)", "PRAGMA is not allowed"),
        ("select_only", "attach 'x' as y", "ATTACH is not allowed"),
        ("select_only", "explain select 1", "only reading is"),
        ("select_only", "values (1)", "VALUES is not allowed"),
        ("select_only", "garbage garbage", "only reading is allowed"),
        ("select_only", "with x as (delete from posts returning *) select * from x", "DELETE is not allowed"),
        ("parts", "select x'00'", "HexString is not allowed"),
        ("parts", "select cast(title as blob) from posts", "cast to text"),
        ("parts", "select title into x from posts", "Into is not allowed"),
        ("parts", "select title from posts where title match :x", "Match is not allowed"),
        ("parts", "select title from posts indexed by x", "INDEXED BY is not allowed"),
        ("parts", "select @x", "Parameter is not allowed"),
        (
            "functions",
            "select load_extension(:x)",
            "the function load_extension is not allowed; there are abs",
        ),
        ("functions", "select readfile(:x)", "the function readfile is not allowed"),
        ("functions", "select trim(title) from posts", "the function trim is not allowed"),
        ("functions", "select current_timestamp", "the function current_timestamp is not allowed"),
        ("recursion", WRITING[-2], "WITH RECURSIVE is not allowed"),
        ("recursion", WRITING[-1], "a refers to itself"),
        (
            "recursion",
            "with a as (select * from b), b as (select * from a) select * from a",
            "refers to itself",
        ),
        ("views", "select * from sqlite_master", "there is no view sqlite_master; there are posts"),
        ("views", "select * from main.posts", "of another database"),
        ("views", "select * from json_each(:x)", "functions are no views"),
        ("views", "with posts as (select 1 as x) select x from posts", "which is there already"),
        (
            "views",
            "with a as (select 1 as x), A as (select 2 as x) select x from a",
            "which is there already",
        ),
        ("columns", "select secret from posts", "there is no column secret; there are author"),
        ("columns", "select rowid from posts", "there is no column rowid"),
        ("columns", "select main.posts.title from posts", "leave out the database"),
        ("columns", 'select title from posts where title = "a"', "bind it"),
        ("columns", "select title", "none without a view after FROM"),
        ("size", "select 1 from " + ", ".join(f"posts a{n}" for n in range(13)), "more than 12 tables"),
        ("size", f"with a0 as (select 1 as q), {', '.join(DOUBLING)} select q from a29", "or one so often"),
        ("literals", "select title from posts where title = 'it''s mine'", 'the text "it\'s mine" stands in'),
        ("literals", "select case 'a' when :x then 1 end", "write :name in its place"),
        ("literals", "select group_concat(title, 'longer than that') from posts", "write :name in its place"),
        ("literals", "select lower('A')", "write :name in its place"),
        ("bindings", "select ?", "has no name"),
        ("bindings", "select :nothing", "the query names :nothing, which bindings lack"),
        ("limit", "select 1 limit -1", "0 or more"),
        ("limit", "select 1 limit 1 offset -1", "0 or more"),
    ],
)
def test_a_gate_says_what_is_wrong_and_what_to_do(gate: str, sql: str, words: str) -> None:
    error = refusal(sql)
    assert error.details["gate"] == gate
    assert words in error.message


@pytest.mark.req("MESH-21")
@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ("a text", True), (1, True), (1.5, True), (True, True), (None, True), ("x" * 1000, True),
        (2**53 - 1, True),        ("x" * 1001, False),
        (2**53, False), ([1], False), ({}, False), ("\0", False), (float("inf"), False),
        (float("nan"), False),
    ],
)  # fmt: skip
def test_values_are_plain(value: Any, fits: bool) -> None:
    if fits:
        assert validator.validate("select :v", {"v": value, "unused": "left out"}).values == {"v": value}
    else:
        assert "no plain value" in refusal("select :v", {"v": value}).message


@pytest.mark.req("MESH-21")
def test_there_are_so_many_values_at_most() -> None:
    many = {f"v{number}": number for number in range(33)}
    assert "more than 32" in refusal("select 1", many).message


@pytest.mark.req("MESH-21")
def test_a_value_without_a_utf8_form_is_made_one() -> None:
    assert validator.validate("select :v", {"v": "\ud800"}).values == {"v": "?"}


@pytest.mark.req("MESH-22")
def test_words_of_a_user_stay_words() -> None:
    words = "x' or 1=1; drop table posts; --"
    checked = validator.validate("select :v", {"v": words})
    assert sandbox.execute("select :v", checked.values, {}, 1).rows == [[words]]


@pytest.mark.req("MESH-20")
def test_a_query_says_which_views_it_reads() -> None:
    sql = "with a as (select node from Nodes) select a.node from a join calls c on c.caller = a.node"
    assert validator.validate(sql, {}).views == {"nodes", "calls"}
