"""JSON from the command line: parsed strictly, with line and column in errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hearthnet.cli.output.text import one_line
from hearthnet.core.canonical_json import json_fault
from hearthnet.core.errors import HearthNetError


def read_json(source: str, option: str, form: str) -> Any:
    """Return the JSON value in `source`: the text itself, `@` and a file's name, or `-`.

    `-` means stdin.

    Raises:
        HearthNetError: `bad_request` with line and column for malformed JSON, and with the required `form` of
            `option`; `not_found` for a missing file.
    """
    text, where = _text(source, option)
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except ValueError as error:
        raise _malformed(f"{where}: {json_fault(error)}", form) from error
    except RecursionError as error:
        raise _malformed(f"{where}: nested too deeply", form) from error


def _text(source: str, option: str) -> tuple[str, str]:
    if source != "-" and not source.startswith("@"):
        return source, option
    if source == "@":
        raise HearthNetError("bad_request", f"{option} names no file; write its name, or - for stdin")
    where = "stdin" if source == "-" else one_line(source[1:])
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source[1:]).read_bytes()
        return data.decode("utf-8-sig"), where
    except FileNotFoundError as error:
        raise HearthNetError("not_found", f"there is no file {where}") from error
    except UnicodeDecodeError as error:
        raise HearthNetError(
            "bad_request", f"malformed JSON in {where}: byte {error.start + 1} is not UTF-8"
        ) from error
    except OSError as error:
        raise HearthNetError("bad_request", f"cannot read {where}: {error.strerror}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{one_line(twice)!r} stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _malformed(message: str, form: str) -> HearthNetError:
    return HearthNetError("bad_request", f"malformed JSON in {message}; it must be {form}")
