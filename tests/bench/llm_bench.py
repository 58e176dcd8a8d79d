"""What translating between the canonical form and each vendor's wire costs (docs/vendors.md)."""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from hearthnet_llm.interface.frames import Done, ToolCall, to_event
from hearthnet_llm.interface.request import ChatRequest, Message, Tool
from hearthnet_llm.vendors import WIRES, wire
from hearthnet_llm.vendors.wire import HttpRequest, ResponseInfo, Target
from tests.bench.figures import Figure, microseconds

_PIECES = 300
_WORD = " water"
_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string", "maxLength": 80} for name in ("query", "place", "day", "note")},
    "required": ["query"],
    "additionalProperties": False,
}


def figures() -> list[Figure]:
    """A streamed frame into events, and a request with 16 tools out and in, for each wire."""
    found = []
    for name in WIRES:
        frames = len(translated(name, STREAMS[name]))
        outgoing, native = request(name)
        work: dict[str, Callable[[], object]] = {
            "stream": partial(translated, name, STREAMS[name]),
            "out": outgoing,
            "in": partial(wire(name).read, native, ""),
        }
        cost = microseconds(work, number=3)
        label = name.replace("-", "_")
        found += [
            Figure(f"llm.{label}.frame_us", cost["stream"] / frames, "us", "< 60", "a streamed frame"),
            Figure(f"llm.{label}.request_ms", cost["out"] / 1000, "ms", "< 1", "a request with 16 tools"),
            Figure(f"llm.{label}.read_ms", cost["in"] / 1000, "ms", "< 1", "the same, read back"),
        ]
    return found


def translated(name: str, data: list[bytes]) -> list[object]:
    """All events of a stream that comes piece by piece."""
    decoder = wire(name).decoder(ResponseInfo("m", 100))
    frames = [frame for piece in data for frame in decoder.feed(piece)]
    frames += decoder.finish()
    return [frame if isinstance(frame, Done) else to_event(frame) for frame in frames]


def request(name: str) -> tuple[Callable[[], object], HttpRequest]:
    """A call of the mesh to the bytes of a request, and that request as it is read."""
    asked = ChatRequest(
        messages=[
            Message(role="system", content="Be brief."),
            Message(role="user", content="How do I keep water clean?"),
            Message(role="assistant", tool_calls=[ToolCall("c1", "tool_1", {"query": "water"})]),
            Message(role="tool", content='{"found": ["Boil it."]}', tool_call_id="c1", name="tool_1"),
        ],
        tools=[Tool(f"tool_{number}", "Searches documents.", _SCHEMA) for number in range(16)],
        tool_choice="auto",
        max_tokens=500,
        temperature=0.7,
        stream=True,
    )
    canonical = msgspec.to_builtins(asked)
    target = Target("m", "https://models.example/v1")

    def outgoing() -> bytes:
        made = wire(name).encode(msgspec.convert(canonical, ChatRequest), target)
        return json.dumps(made.body, ensure_ascii=False).encode()

    return outgoing, wire(name).encode(asked, target)


def _events(objects: Iterable[Any]) -> list[bytes]:
    return [b"data: " + json.dumps(one).encode() + b"\n\n" for one in objects]


def _typed(objects: Iterable[Any]) -> list[bytes]:
    return [b"event: %s\ndata: %s\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in objects]


def _lines(objects: Iterable[Any]) -> list[bytes]:
    return [json.dumps(one).encode() + b"\n" for one in objects]


def _framed(events: Iterable[tuple[str, Any]]) -> list[bytes]:
    """Events as AWS frames them: two lengths and their checksum, headers, payload, checksum."""
    made = []
    for name, value in events:
        named = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
        headers = b"".join(
            struct.pack(f">B{len(key)}sBH{len(text)}s", len(key), key.encode(), 7, len(text), text.encode())
            for key, text in named.items()
        )
        payload = json.dumps(value).encode()
        head = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
        message = head + struct.pack(">I", zlib.crc32(head)) + headers + payload
        made.append(message + struct.pack(">I", zlib.crc32(message)))
    return made


def _openai() -> list[Any]:
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    words = [{**head, "choices": [{"index": 0, "delta": {"content": _WORD}}]} for _ in range(_PIECES)]
    end = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return [*words, end, {**head, "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 300}}]


def _anthropic() -> list[Any]:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": _WORD}}
    return [
        {
            "type": "message_start",
            "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 9}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[delta] * _PIECES,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 300}},
        {"type": "message_stop"},
    ]


def _converse() -> list[tuple[str, Any]]:
    return [
        ("messageStart", {"role": "assistant"}),
        *[("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": _WORD}})] * _PIECES,
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": {"inputTokens": 9, "outputTokens": 300, "totalTokens": 309}}),
    ]


def _in_bedrock() -> list[tuple[str, Any]]:
    return [("chunk", {"bytes": b64encode(json.dumps(one).encode()).decode()}) for one in _anthropic()]


def _gemini() -> list[Any]:
    said = {"content": {"role": "model", "parts": [{"text": _WORD}]}, "index": 0}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 300}
    words = [{"candidates": [said], "usageMetadata": usage} for _ in range(_PIECES)]
    return [*words, {"candidates": [{**said, "finishReason": "STOP"}], "usageMetadata": usage}]


def _ollama() -> list[Any]:
    words = [{"model": "m", "message": {"role": "assistant", "content": _WORD}, "done": False}] * _PIECES
    end = {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    return [*words, {**end, "prompt_eval_count": 9, "eval_count": 300}]


STREAMS: dict[str, list[bytes]] = {
    "anthropic": _typed(_anthropic()),
    "bedrock-anthropic": _framed(_in_bedrock()),
    "bedrock-converse": _framed(_converse()),
    "gemini": _events(_gemini()),
    "ollama": _lines(_ollama()),
    "openai": _events(_openai()),
}
