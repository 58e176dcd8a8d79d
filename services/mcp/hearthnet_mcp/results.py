"""Conversion of a tool's result into the output of its capability. Pure.

Texts stay texts; images, audio and files are included as base64 as long as the whole fits into one reply on
the bus. A part that does not fit is replaced by its description and size.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from hearthnet.contracts import SchemaCheck

MOST_CHARACTERS: Final = 500_000
"""Limit of all parts of one reply: a frame on the bus has about a million bytes, and a character takes up to
two of them here.
"""


_MOST_COUNTED: Final = 2.0**53


def output(result: dict[str, Any], promised: SchemaCheck | None = None) -> dict[str, Any]:
    """Return the output for a `tools/call` result in the names of the MCP schema.

    If the tool has a schema for its value, `promised`, the value takes precedence over the parts, which
    mostly repeat it as text. An invalid or too large value is omitted, and a text part gives the reason.
    """
    value = result.get("structuredContent")
    fault = _fault(value, promised)
    structured = {} if value is None or fault else {"structured": value}
    room = MOST_CHARACTERS
    if promised is not None and structured:
        room -= _size(value)
    parts = []
    for block in result.get("content") or []:
        part = _part(block)
        size = _size(part)
        if size > room:
            part = _cut(part, size, room)
            size = _size(part)
        room = max(0, room - size)
        parts.append(part)
    if promised is None and structured and _size(value) > room:
        structured, fault = {}, f"with the text it has over {MOST_CHARACTERS} characters"
    if fault:
        parts.append({"type": "text", "text": f"[the value of this result is left out: {fault}]"})
    return {"content": parts, "is_error": bool(result.get("isError")), **structured}


def _fault(value: Any, promised: SchemaCheck | None) -> str:
    """Return the reason to omit a result's value, or an empty text."""
    if value is not None and promised is not None and (problems := promised.errors(value)):
        return f"it is not as the tool's own schema has it: {problems[0].path} {problems[0].message}"
    size = _size(value)
    return f"it has {size} characters, over {MOST_CHARACTERS}" if size > MOST_CHARACTERS else ""


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _part(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": str(block.get("text", ""))}
    if kind in ("image", "audio"):
        return {"type": kind, "data": block.get("data", ""), "media_type": block.get("mimeType", "")}
    if kind == "resource":
        return _resource(block.get("resource") or {})
    if kind == "resource_link":
        link = {"type": "link", "url": str(block.get("uri", "")), "name": str(block.get("name", ""))}
        return link | _filled(media_type=block.get("mimeType"), description=block.get("description"))
    return {"type": "json", "value": block}


def _resource(resource: dict[str, Any]) -> dict[str, Any]:
    part = {"type": "document", "url": str(resource.get("uri", ""))}
    content = {"text": resource["text"]} if "text" in resource else {"data": resource.get("blob", "")}
    return part | _filled(media_type=resource.get("mimeType")) | content


def _filled(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _cut(part: dict[str, Any], size: int, room: int) -> dict[str, Any]:
    """Return the beginning of a text that does not fit; of other parts a description."""
    if part["type"] == "text" and room > 1_000:
        text = part["text"]
        beginning = text[: room // 2 - 200]
        more = len(text) - len(beginning)
        return {"type": "text", "text": f"{beginning}\n[cut here: {more} more characters]"}
    about: dict[str, Any] = {name: part[name] for name in ("url", "name", "media_type") if name in part}
    return {"type": "omitted", "was": part["type"], **about, "bytes": size}


def progress(done: float, total: float | None, message: str | None) -> dict[str, Any]:
    """Return the data of a `progress` frame, whose numbers are integers.

    Fractional numbers are converted to percent.
    """
    current, of = _counted(done), _counted(total or 0.0)
    if of and (current != int(current) or of != int(of)):
        current, of = min(100.0, 100 * current / of), 100.0
    return {"current": int(current), "total": int(of), "stage": (message or "")[:200]}


def _counted(number: float) -> float:
    return min(max(number, 0.0), _MOST_COUNTED) if math.isfinite(number) else 0.0
