"""An exchange in the form of a recording, and the framings that answers come in."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.services.llm.asking import frame

Json = dict[str, Any]
SHELF = {"type": "object", "properties": {"shelf": {"type": "string"}}, "required": ["shelf"]}
"""The arguments of the one tool that most of the requests offer."""


def streamed(path: str, asked: Json | None, body: str, content_type: str = "text/event-stream") -> Json:
    """An answer as text that came in pieces."""
    return _exchange(path, asked, {"body": body, "content_type": content_type}, stream=True)


def whole(path: str, asked: Json | None, answer: Json, status: int = 200) -> Json:
    """An answer in one JSON object."""
    body = json.dumps(answer, ensure_ascii=False)
    return _exchange(path, asked, {"body": body, "content_type": "application/json", "status": status})


def framed(path: str, asked: Json | None, *frames: bytes) -> Json:
    """An answer in AWS's event stream."""
    answer = {
        "body": base64.b64encode(b"".join(frames)).decode(),
        "encoding": "base64",
        "content_type": "application/vnd.amazon.eventstream",
    }
    return _exchange(path, asked, answer, stream=True)


def sse(*events: Json, named: bool = False, end: str = "") -> str:
    """Server-sent events, with the type of each in a line of its own where `named`."""
    heads = [f"event: {event['type']}\n" if named else "" for event in events]
    texts = [json.dumps(event, ensure_ascii=False) for event in events]
    return "".join(f"{head}data: {text}\n\n" for head, text in zip(heads, texts, strict=True)) + end


def _exchange(path: str, asked: Json | None, answer: Json, stream: bool = False) -> Json:
    request = None if asked is None else {"method": "POST", "path": path, "json": asked}
    return {"stream": stream, "request": request, "response": {"status": 200, **answer}}


__all__ = ["SHELF", "Json", "frame", "framed", "sse", "streamed", "whole"]
