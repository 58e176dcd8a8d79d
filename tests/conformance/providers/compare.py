"""Two JSON values, field by field.

Equal are: a field that is null and one that is absent (every vendor's reference says so of its optional
fields); numbers of equal value, written 1 or 1.0; JSON inside a text field, however it is spaced, where the
wire says that the field holds JSON (no arguments at all, "", are {}). Everything else must be the same, the
order of lists included. Inside what belongs to the caller, such as a schema or arguments, null is a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

CALLERS = (
    "parameters", "schema", "arguments", "input_schema", "input", "json", "args", "parametersJsonSchema",
    "parameters_json_schema", "responseSchema", "response_schema", "responseJsonSchema",
    "response_json_schema", "format",
)  # fmt: skip
"""Fields that hold the caller's own JSON."""
_CALLERS = re.compile(rf"(^|\.)({'|'.join(CALLERS)})(\.|\[|$)")
_ABSENT = object()


def differences(recorded: Any, rebuilt: Any, json_texts: tuple[str, ...], path: str = "") -> Iterator[str]:
    """Each difference as its path and both values."""
    if isinstance(recorded, dict) and isinstance(rebuilt, dict):
        callers = re.search(_CALLERS, path) is not None
        absent = _ABSENT if callers else None
        for key in (*recorded, *(key for key in rebuilt if key not in recorded)):
            inner = f"{path}.{key}" if path else key
            yield from differences(recorded.get(key, absent), rebuilt.get(key, absent), json_texts, inner)
    elif isinstance(recorded, list) and isinstance(rebuilt, list) and len(recorded) == len(rebuilt):
        for index, (one, other) in enumerate(zip(recorded, rebuilt, strict=True)):
            yield from differences(one, other, json_texts, f"{path}[{index}]")
    elif not _same(recorded, rebuilt, re.sub(r"\[\d+\]", "[]", path) in json_texts):
        yield f"{path}: recorded {_short(recorded)}, rebuilt {_short(rebuilt)}"


def _same(recorded: Any, rebuilt: Any, is_json: bool) -> bool:
    if is_json and isinstance(recorded, str) and isinstance(rebuilt, str):
        return _parsed(recorded) == _parsed(rebuilt)
    if isinstance(recorded, bool) or isinstance(rebuilt, bool):
        return recorded is rebuilt
    if isinstance(recorded, int | float) and isinstance(rebuilt, int | float):
        return recorded == rebuilt
    return type(recorded) is type(rebuilt) and bool(recorded == rebuilt)


def _parsed(text: str) -> str:
    try:
        return json.dumps(json.loads(text or "{}"), sort_keys=True)
    except ValueError:
        return text


def _short(value: Any) -> str:
    text = "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:160]}..."
