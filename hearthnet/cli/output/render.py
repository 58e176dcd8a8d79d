"""JSON values as lines for people: names and values, nested by indentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hearthnet.cli.output.text import as_json, many_lines, one_line


def as_lines(value: Any) -> Iterator[str]:
    """Yield `value` in lines without control characters."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _member(f"{one_line(str(name))}:", inner)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _member("-", inner)
    else:
        yield from _leaf(value)


def _member(head: str, value: Any) -> Iterator[str]:
    lines = list(as_lines(value))
    flat = head == "-" or not isinstance(value, dict | list) or not value
    if flat and (len(lines) == 1 or head == "-"):
        first, *lines = lines
        head = f"{head} {first}"
    yield head
    for line in lines:
        yield f"  {line}"


def _leaf(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from many_lines(value).splitlines() or [""]
    else:
        yield as_json(value)
