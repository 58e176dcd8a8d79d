"""One request with all that every wire has in common, and a way to hear an answer in pieces."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from typing import Any
from zlib import crc32

import msgspec

from hearthnet.contracts.registry import contracts
from hearthnet_llm.interface.content_parts import ImagePart, JsonPart, TextPart
from hearthnet_llm.interface.frames import Frame, ToolCall
from hearthnet_llm.interface.request import ChatRequest, Message, Tool
from hearthnet_llm.vendors import wire
from hearthnet_llm.vendors.wire import HttpRequest, ResponseInfo, Target
from tests.conformance.providers.recording import Answered, Recording, Sent
from tests.conformance.providers.requests import problems

PNG = "iVBORw0KGgo="
WEATHER = Tool(
    "weather",
    "Tells the weather",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
CLOCK = Tool("clock", "Tells the time")
ANSWER = {"type": "object", "properties": {"warm": {"type": "boolean"}}}

ASKED = ChatRequest(
    messages=[
        Message("system", "Be brief."),
        Message(
            "user",
            [TextPart("Which city is this, and how is it there?"), ImagePart(PNG, None, None, "image/png")],
        ),
        Message(
            "assistant",
            "I will look.",
            [ToolCall("c_one", "weather", {"city": "Köln"}), ToolCall("c_two", "clock", {})],
        ),
        Message("tool", [JsonPart({"sky": "blue"})], tool_call_id="c_one"),
        Message("tool", "no clock here", tool_call_id="c_two", is_error=True),
        Message("user", "And is it warm?"),
    ],
    max_tokens=200,
    temperature=0.5,
    stop=["END"],
    tools=[WEATHER, CLOCK],
    tool_choice="auto",
    stream=True,
)


def sent(name: str, target: Target, request: ChatRequest = ASKED) -> HttpRequest:
    """What goes out; checked to be read back as it was asked, through the contract as JSON."""
    known = wire(name)
    native = known.encode(request, target)
    again, its_target = known.read(native, target.vendor)
    carried = json.loads(msgspec.json.encode({"params": {}, "input": again}))
    contracts().get("llm.chat@2.0").check_request(carried)
    rebuilt = known.encode(msgspec.convert(carried["input"], ChatRequest), its_target)
    assert (rebuilt.method, rebuilt.url, rebuilt.body) == (native.method, native.url, native.body)
    return native


def changed(**fields: Any) -> ChatRequest:
    """The request with other fields."""
    return msgspec.structs.replace(ASKED, **fields)


def heard(name: str, data: bytes, cuts: tuple[int, ...] = (), prompt_size: int = 70) -> list[Frame]:
    """The frames of an answer that comes in pieces."""
    decoder = wire(name).decoder(ResponseInfo("m", prompt_size))
    found: list[Frame] = []
    for start, end in pairwise((0, *cuts, len(data))):
        found += decoder.feed(data[start:end])
    return [*found, *decoder.finish()]


def events(*values: dict[str, Any]) -> bytes:
    """The values as server-sent events."""
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def frame(kind: str, body: dict[str, Any], message: str = "event") -> bytes:
    """One frame of AWS's event stream."""
    head = b"".join(
        bytes([len(name)]) + name + b"\x07" + struct.pack("!H", len(value)) + value
        for name, value in (
            (b":event-type" if message == "event" else b":exception-type", kind.encode()),
            (b":message-type", message.encode()),
        )
    )
    payload = json.dumps(body).encode()
    prelude = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    made = prelude + struct.pack("!I", crc32(prelude)) + head + payload
    return made + struct.pack("!I", crc32(made))


def talk(*turns: Any) -> dict[str, Any]:
    """A native conversation: the user's turns and the assistant's by turns."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[place % 2], "content": turn} for place, turn in enumerate(turns)]}


def outcome(provider: str, path: str, body: dict[str, Any]) -> tuple[str, list[str]]:
    """What the check of recordings says of a native request that was never recorded."""
    return problems(Recording("own", provider, Answered(200, "{}"), Sent("POST", path, body)))
