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
    room, given = MOST_CHARACTERS, _value(value, promised)
    if promised is not None and "structured" in given:
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
    if promised is None and _size(value) > room:
        given = {}
    if "left_out" in given:
        parts.append(
            {"type": "text", "text": f"[the value of this result is left out: {given.pop('left_out')}]"}
        )
    return {"content": parts, "is_error": bool(result.get("isError")), **given}


def _value(value: Any, promised: SchemaCheck | None) -> dict[str, Any]:
    """Return `structured` with the result's value, or `left_out` with the reason to omit it."""
    if value is None:
        return {}
    if promised is not None and (problems := promised.errors(value)):
        return {
            "left_out": f"it is not as the tool's own schema has it: {problems[0].path} {problems[0].message}"
        }
    if _size(value) > MOST_CHARACTERS:
        return {"left_out": f"it has {_size(value)} characters, over {MOST_CHARACTERS}"}
    return {"structured": value}


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
        return {
            **link,
            **_media(block),
            **({"description": block["description"]} if block.get("description") else {}),
        }
    return {"type": "json", "value": block}


def _resource(resource: dict[str, Any]) -> dict[str, Any]:
    part = {"type": "document", "url": str(resource.get("uri", "")), **_media(resource)}
    return (
        {**part, "text": resource["text"]}
        if "text" in resource
        else {**part, "data": resource.get("blob", "")}
    )


def _media(block: dict[str, Any]) -> dict[str, Any]:
    return {"media_type": block["mimeType"]} if block.get("mimeType") else {}


def _cut(part: dict[str, Any], size: int, room: int) -> dict[str, Any]:
    """Return the beginning of a text that does not fit; of other parts a description."""
    if part["type"] == "text" and room > 1_000:
        kept = part["text"][: room // 2 - 200]
        return {
            "type": "text",
            "text": f"{kept}\n[cut here: {len(part['text']) - len(kept)} more characters]",
        }
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
