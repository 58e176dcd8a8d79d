"""Checks of a query before it reaches the database ("gates"), each with its own message.

     1  length         has at most 4,000 characters
     2  characters     has no control characters
     3  parses         is accepted by an SQL parser
     4  one_statement  is one statement
     5  select_only    is a SELECT, or several combined by UNION, INTERSECT, EXCEPT
     6  parts          consists of known syntax only (grammar.py)
     7  functions      calls only functions of the list
     8  recursion      has no part of WITH that refers to itself
     9  views          reads only the views, and nothing of another database
    10  columns        names columns of these views, or names defined in the query
    11  size           reads a limited number of tables, with multiplication by WITH
    12  literals       binds its texts, so that no foreign text becomes SQL
    13  bindings       has a plain value for each :name
    14  limit          has no negative LIMIT

After them sandbox.py limits time, steps, memory, rows and bytes, and sets an authorizer that does not rely on
these checks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from hearthnet_mesh.query import grammar
from hearthnet_mesh.query.grammar import rejected
from hearthnet_mesh.query.views import LARGEST, VIEWS

LONGEST: Final = 4_000
MOST_TABLES: Final = 12
MOST_BINDINGS: Final = 32
LONGEST_BINDING: Final = 1_000
LONGEST_SEPARATOR: Final = 8
_BOUND: Final = 'write :name in its place and give {"name": ...} in bindings'


class Checked(NamedTuple):
    """A query that passed: the views that it reads, and the values of its names."""

    views: frozenset[str]
    values: dict[str, Any]


def validate(sql: str, bindings: Mapping[str, Any]) -> Checked:
    """Apply all checks to `sql`.

    Raises:
        HearthNetError: `bad_request` that names the first check that failed.
    """
    _text(sql)
    tree = _parsed(sql)
    _select_only(tree)
    nodes = list(tree.walk())
    for node in nodes:
        _part(node)
    made = _made(nodes)
    order = _order(made)
    views = _views(nodes, made)
    _columns(nodes, made, views)
    _size(tree, made, order)
    for node in nodes:
        _literal(node)
        _limit(node)
    return Checked(views, _bindings(nodes, bindings))


def _text(sql: str) -> None:
    if len(sql) > LONGEST:
        raise rejected("length", f"the query has {len(sql)} characters, more than {LONGEST}; ask in parts")
    if any(not (character.isprintable() or character in "\n\r\t") for character in sql):
        raise rejected("characters", "the query has control characters in it; leave them out")


def _parsed(sql: str) -> exp.Expr:
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    try:
        found = [one for one in sqlglot.parse(sql, read="sqlite") if one is not None]
    except RecursionError:
        raise rejected("parses", "it is nested too deeply; write it flatter") from None
    except (SqlglotError, ValueError) as error:
        first = str(error).partition("\n")[0].replace("\x1b[4m", "").replace("\x1b[0m", "")[:200]
        raise rejected("parses", f"this is no SQL that SQLite knows: {first}") from None
    if not found:
        raise rejected("parses", "there is no statement; write one SELECT")
    if len(found) > 1:
        raise rejected("one_statement", f"there are {len(found)} statements; write one SELECT")
    return found[0]


def _select_only(tree: exp.Expr) -> None:
    for node in tree.walk():
        name = grammar.STATEMENTS.get(type(node).__name__)
        # sqlglot has the same kind of node for the function replace().
        if name is not None and not (name == "REPLACE" and isinstance(node, exp.Func)):
            raise rejected("select_only", f"{name} is not allowed, only reading is; write one SELECT")
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise rejected("select_only", "only reading is allowed; write one SELECT")


def _part(node: exp.Expr) -> None:
    """Apply checks 6 and 7."""
    kind = type(node).__name__
    if kind in grammar.PARTS:
        if isinstance(node, exp.DataType) and node.this.name not in grammar.TYPES:
            raise rejected("parts", f"cast to {node.this.name} is not allowed; cast to text, integer or real")
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
            raise rejected("views", f"functions are no views; there are {_list(VIEWS)}")
        return
    if kind in grammar.FUNCTIONS:
        return
    if isinstance(node, exp.Func):
        name = (node.name if kind == "Anonymous" else node.sql_names()[0]).lower()
        if name not in grammar.NAMED:
            known = sorted(set(grammar.FUNCTIONS.values()) | grammar.NAMED)
            raise rejected("functions", f"the function {name[:40]} is not allowed; there are {_list(known)}")
        return
    raise rejected(
        "parts", f"{kind} is not allowed; keep to plain SELECT, JOIN, WHERE, GROUP BY, ORDER BY, LIMIT"
    )


def _made(nodes: list[exp.Expr]) -> dict[str, exp.CTE]:
    """Return the tables that the query defines by WITH."""
    made: dict[str, exp.CTE] = {}
    for node in nodes:
        if isinstance(node, exp.CTE):
            name = node.alias.lower()
            if name in made or name in VIEWS:
                raise rejected(
                    "views", f"WITH makes {name[:40]}, which is there already; choose another name"
                )
            made[name] = node
    return made


def _order(made: dict[str, exp.CTE]) -> list[str]:
    """Return the tables of WITH, each behind those that it reads (check 8)."""
    for cte in made.values():
        if isinstance(cte.parent, exp.With) and cte.parent.args.get("recursive"):
            raise rejected("recursion", "WITH RECURSIVE is not allowed; write it without")
    reads = {name: set(_tables(cte)) & made.keys() for name, cte in made.items()}
    try:
        return list(TopologicalSorter(reads).static_order())
    except CycleError as error:
        name = min(error.args[1])
        raise rejected(
            "recursion", f"{name[:40]} refers to itself; a part of WITH may use other parts only"
        ) from None


def _views(nodes: list[exp.Expr], made: dict[str, exp.CTE]) -> frozenset[str]:
    read: set[str] = set()
    for node in nodes:
        if not isinstance(node, exp.Table):
            continue
        if node.args.get("db") or node.args.get("catalog"):
            raise rejected("views", f"{node.name[:40]} is of another database; name a view alone")
        if node.args.get("indexed"):
            raise rejected("parts", "INDEXED BY is not allowed; leave it out")
        name = node.name.lower()
        if name not in made and name not in VIEWS:
            raise rejected("views", f"there is no view {name[:40]}; there are {_list(VIEWS)}")
        read |= {name} & VIEWS.keys()
    return frozenset(read)


def _columns(nodes: list[exp.Expr], made: dict[str, exp.CTE], views: frozenset[str]) -> None:
    """Check the names of columns.

    SQLite finds the view of each column; its tables have these columns only.
    """
    known = {column for view in views for column in VIEWS[view]}
    known |= {node.alias.lower() for node in nodes if isinstance(node, exp.Alias)}
    known |= {
        column.name.lower()
        for node in nodes
        if isinstance(node, exp.TableAlias)
        for column in node.args.get("columns") or ()
    }
    for node in nodes:
        if isinstance(node, exp.Column):
            if node.args.get("db"):
                raise rejected("columns", "a column has one view before it at most; leave out the database")
            if not isinstance(node.this, exp.Star) and node.name.lower() not in known:
                where = _list(sorted(known)) if known else "none without a view after FROM"
                text = " (a text is no column: bind it)" if node.this.args.get("quoted") else ""
                raise rejected("columns", f"there is no column {node.name[:40]}{text}; there are {where}")


def _size(tree: exp.Expr, made: dict[str, exp.CTE], order: list[str]) -> None:
    weights: dict[str, int] = {}
    for name in order:
        weights[name] = 1 + sum(weights.get(table, 1) for table in _tables(made[name]))
    if sum(weights.get(table, 1) for table in _tables(tree)) > MOST_TABLES:
        raise rejected("size", f"it reads more than {MOST_TABLES} tables, or one so often; ask in parts")


def _literal(node: exp.Expr) -> None:
    if not isinstance(node, exp.Literal) or not node.is_string or not node.this:
        return
    parent = node.parent
    if (
        isinstance(parent, exp.GroupConcat)
        and node is not parent.this
        and len(node.this) <= LONGEST_SEPARATOR
    ):
        return
    while isinstance(parent, exp.Func) and not isinstance(parent, exp.Case | exp.If):
        name = parent.name.lower() if type(parent).__name__ == "Anonymous" else ""
        if grammar.FUNCTIONS.get(type(parent).__name__, name) in grammar.OF_TIME:
            return
        parent = parent.parent
    raise rejected("literals", f"the text {node.this[:40]!r} stands in the query; {_BOUND}")


def _limit(node: exp.Expr) -> None:
    if isinstance(node, exp.Limit | exp.Offset) and isinstance(node.expression, exp.Neg):
        raise rejected("limit", "LIMIT and OFFSET are 0 or more")


def _bindings(nodes: list[exp.Expr], given: Mapping[str, Any]) -> dict[str, Any]:
    if len(given) > MOST_BINDINGS:
        raise rejected("bindings", f"there are {len(given)} bindings, more than {MOST_BINDINGS}")
    named = [node.name for node in nodes if isinstance(node, exp.Placeholder)]
    for name in named:
        if name in ("", "?"):
            raise rejected("bindings", 'a "?" has no name; write :name and give {"name": ...} in bindings')
        if name not in given:
            raise rejected("bindings", f"the query names :{name[:40]}, which bindings lack; give its value")
    return {name: _plain(name, given[name]) for name in dict.fromkeys(named)}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, str) and len(value) <= LONGEST_BINDING and "\0" not in value:
        return value.encode(errors="replace").decode()
    if value is None or (isinstance(value, int | float) and abs(value) <= LARGEST):
        return value
    raise rejected(
        "bindings",
        f":{name[:40]} is no plain value: give a text of up to {LONGEST_BINDING} characters, a number, true, "
        "false or null",
    )


def _tables(tree: exp.Expr) -> Iterator[str]:
    return (
        node.name.lower()
        for node in tree.walk(prune=lambda one: one is not tree and isinstance(one, exp.CTE))
        if isinstance(node, exp.Table)
    )


def _list(names: Any) -> str:
    return ", ".join(names)
