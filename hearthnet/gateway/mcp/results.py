"""Outputs and errors as results of `tools/call`. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import is_derived
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.mcp.tools import promised

_MEDIA: Final = ("image", "audio")


def result(
    contract: Contract, output: Any, meta: dict[str, Any], *, any_output: bool = False
) -> dict[str, Any]:
    """Return a result: the output as a value and as text, or the parts of a foreign tool.

    `any_output`: the value need not be an object.
    """
    if is_derived(contract.name) and isinstance(output, dict) and isinstance(output.get("content"), list):
        found = {
            "content": [_block(part) for part in output["content"]],
            "isError": output.get("is_error") is True,
        }
        if isinstance(output.get("structured"), dict) or (any_output and "structured" in output):
            found["structuredContent"] = output["structured"]
        elif promised(contract) is not None:
            # The value is missing, for its size or since it does not fit the schema; the parts say why.
            # Clients reject a result without the value that the list promises, unless it is an error.
            found["isError"] = True
    else:
        found = {"content": [_text(_json(output))], "isError": False}
        if isinstance(output, dict):
            found["structuredContent"] = output
    return {**found, "_meta": {"hearthnet/meta": meta}}


def failed(error: HearthNetError) -> dict[str, Any]:
    """Return an error result: code and message as text, the whole error in `_meta`."""
    return {
        "content": [_text(f"{error.code}: {error.message}")],
        "isError": True,
        "_meta": {"hearthnet/error": error.to_body()},
    }


def _block(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "text":
        return _text(str(part.get("text", "")))
    if kind in _MEDIA:
        return {"type": kind, "data": part.get("data", ""), "mimeType": part.get("media_type", "")}
    if kind == "document" and ("text" in part or "data" in part):
        resource = {"uri": part.get("url") or "about:blank"}
        if part.get("media_type"):
            resource["mimeType"] = part["media_type"]
        resource |= {"text": part["text"]} if "text" in part else {"blob": part["data"]}
        return {"type": "resource", "resource": resource}
    if kind == "link" and part.get("url"):
        return {"type": "resource_link", "uri": part["url"], "name": part.get("name") or part["url"]}
    return _text(_json(part))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
