"""Allowed syntax of a query (the kinds of nodes in sqlglot's trees, and the functions), and its refusal.

This is an allowlist: syntax that SQLite or sqlglot add later is refused until it has been reviewed.
"""

from __future__ import annotations

from typing import Final

from hearthnet import HearthNetError

PARTS: Final = frozenset({
    "Select", "Union", "Intersect", "Except", "Subquery", "With", "CTE", "From", "Join", "Table",
    "TableAlias", "Where", "Group", "Having", "Order", "Ordered", "Limit", "Offset", "Distinct", "Star",
    "Column", "Identifier", "Alias", "Literal", "Placeholder", "Null", "Boolean", "Paren", "Tuple", "And",
    "Or", "Not", "EQ", "NEQ", "LT", "LTE", "GT", "GTE", "Is", "NullSafeEQ", "NullSafeNEQ", "In", "Between",
    "Like", "Glob", "Escape", "Exists", "Add", "Sub", "Mul", "Div", "Mod", "Neg", "DPipe", "BitwiseAnd",
    "BitwiseOr", "BitwiseNot", "Case", "If", "Cast", "DataType", "Collate", "Var", "Window", "WindowSpec",
    "Filter", "JSONPath", "JSONPathKey", "JSONPathRoot", "JSONPathSubscript",
})  # fmt: skip
"""Kinds of nodes other than calls of functions; sqlglot counts several of them as functions."""

FUNCTIONS: Final[dict[str, str]] = {
    "Abs": "abs", "Avg": "avg", "Coalesce": "coalesce", "Count": "count", "Date": "date",
    "DenseRank": "dense_rank", "Greatest": "max", "GroupConcat": "group_concat",
    "JSONExtract": "json_extract", "JSONExtractScalar": "json_extract", "Least": "min", "Length": "length",
    "Lower": "lower", "Max": "max", "Min": "min", "Nullif": "nullif", "Rank": "rank", "Round": "round",
    "RowNumber": "row_number", "Substring": "substr", "Sum": "sum", "TimeToStr": "strftime",
    "TsOrDsToTimestamp": "datetime", "Upper": "upper",
}  # fmt: skip
"""Functions with a kind of node of their own in sqlglot, and their names in SQLite."""

NAMED: Final = frozenset({
    "date", "datetime", "ifnull", "iif", "json_array_length", "julianday", "strftime", "time", "total",
    "unixepoch",
})  # fmt: skip
"""Functions that sqlglot knows only by name."""

OF_TIME: Final = frozenset({"date", "datetime", "julianday", "strftime", "time", "unixepoch"})
"""Functions whose text arguments are formats and time modifiers instead of data."""

OPERATORS: Final = frozenset({"like", "glob", "->", "->>", "substring", "likely", "unlikely"})
"""Operators that SQLite reports to the authorizer as functions."""

AT_THE_WALL: Final = frozenset(FUNCTIONS.values()) | NAMED | OPERATORS

TYPES: Final = frozenset({"TEXT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR"})
"""Types allowed in CAST; none of them makes bytes."""

STATEMENTS: Final[dict[str, str]] = {
    "Insert": "INSERT", "Update": "UPDATE", "Delete": "DELETE", "Create": "CREATE", "Drop": "DROP",
    "Alter": "ALTER", "Pragma": "PRAGMA", "Attach": "ATTACH", "Detach": "DETACH", "Command": "that",
    "Values": "VALUES", "Transaction": "BEGIN", "Commit": "COMMIT", "Rollback": "ROLLBACK",
    "Analyze": "ANALYZE", "Merge": "MERGE", "Replace": "REPLACE", "Set": "SET", "Describe": "DESCRIBE",
    "TruncateTable": "TRUNCATE", "Copy": "COPY",
}  # fmt: skip


def rejected(gate: str, message: str) -> HearthNetError:
    """Return the error of a check, for its caller to raise.

    The error is a fault of the query. `gate` names the check; `message` gives the fault and the remedy.
    """
    return HearthNetError(
        "bad_request", f"refused by gate {gate!r}: {message}", details={"path": "/input/sql", "gate": gate}
    )
