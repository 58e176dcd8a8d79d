"""Every shape of request that the contract `llm.chat@2.0` allows, one by one: messages of each kind of part,
tools, choices, forms, thinking, settings. What a vendor's types make of them is tested in test_shapes.py.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

import msgspec
from PIL import Image

from hearthnet.contracts.registry import contracts
from hearthnet_llm.interface.content_parts import (
    AudioPart,
    CacheHint,
    CallPart,
    Citation,
    DocumentPart,
    ImagePart,
    JsonPart,
    ListedTool,
    ModelChangePart,
    Part,
    RefusalPart,
    SearchResultPart,
    ServerCallPart,
    ServerResultPart,
    SummaryPart,
    TextPart,
    ThinkingPart,
    ToolChangePart,
    ToolListingPart,
    ToolReferencePart,
    UploadPart,
    VideoPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import (
    ChatRequest,
    Message,
    Named,
    Region,
    ResponseSchema,
    ServerTool,
    TextForm,
    Thinking,
    Tool,
)


def picture(width: int = 40, height: int = 20, form: str = "PNG", mode: str = "RGB", **saved: Any) -> bytes:
    """A picture that is red on its left and blue on its right."""
    image = Image.new(mode, (width, height), "blue")
    image.paste("red", (0, 0, width // 2, height))
    return written(image, form, **saved)


def written(image: Image.Image, form: str, **saved: Any) -> bytes:
    """The image as a file."""
    data = BytesIO()
    image.save(data, form, **saved)
    return data.getvalue()


PNG: Final = base64.b64encode(picture()).decode()
PDF: Final = base64.b64encode(b"%PDF-1.7\n%%EOF").decode()
WAV: Final = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt ").decode()
MP3: Final = base64.b64encode(b"ID3\x04\x00\x00\x00\x00\x00\x00").decode()
MP4: Final = base64.b64encode(b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00").decode()
TEXT: Final = base64.b64encode(b"Boil it for one minute.").decode()
PROOF: Final = base64.b64encode(b"proof").decode()
SCHEMA: Final = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
LOOK: Final = Tool("look", "Looks", SCHEMA)
BARE: Final = Tool("bare")
TYPED: Final = Tool("write", "Writes", text=TextForm("text"))
ASKED: Final = Message("user", "What is there?")

USER_PARTS: Final[dict[str, Part]] = {
    "text": TextPart("Look at it."),
    "text to keep": TextPart("Look at it.", CacheHint("1h")),
    "text to guard": TextPart("Look at it.", guard=["query"]),
    "image": ImagePart(PNG, media_type="image/png"),
    "image of unsaid type": ImagePart(PNG),
    "image at a url": ImagePart(url="https://example.org/a.png"),
    "image of a file": ImagePart(file_id="file-1"),
    "image closely": ImagePart(PNG, media_type="image/png", detail="high", name="a.png"),
    "audio": AudioPart(WAV, media_type="audio/wav"),
    "audio by another name": AudioPart(MP3, media_type="audio/mpeg"),
    "audio of unsaid type": AudioPart(MP3),
    "audio at a url": AudioPart(url="https://example.org/a.mp3"),
    "video": VideoPart(MP4, media_type="video/mp4", start="1s", end="2s", fps=1.0),
    "video of unsaid type": VideoPart(MP4),
    "video at a url": VideoPart(url="https://example.org/a.mp4"),
    "document": DocumentPart(PDF, media_type="application/pdf", name="Paper"),
    "document without a name": DocumentPart(PDF, media_type="application/pdf"),
    "document of unsaid type": DocumentPart(PDF),
    "document of plain text": DocumentPart(TEXT, media_type="text/plain", name="a.txt"),
    "document at a url": DocumentPart(url="https://example.org/a.pdf"),
    "document of a file": DocumentPart(file_id="file-1"),
    "document as text": DocumentPart(text="All of it.", name="Paper", context="old", citations=True),
    "document in pieces": DocumentPart(texts=[TextPart("One."), TextPart("Two.")], citations=False),
    "search result": SearchResultPart("here", "A title", [TextPart("found")], citations=True),
    "value": JsonPart({"a": [1, None]}),
    "upload": UploadPart("file-1"),
}
ASSISTANT_PARTS: Final[dict[str, Part]] = {
    "text": TextPart("I see."),
    "cited": TextPart("I see.", citations=[Citation("web", title="A", url="https://example.org")]),
    "cited barely": TextPart("I see.", citations=[Citation("chars")]),
    "signed": TextPart("I see.", signature=PROOF),
    "thought": ThinkingPart("so", PROOF),
    "thought without proof": ThinkingPart("so"),
    "hidden thought": ThinkingPart(data="Y2lwaGVy"),
    "refusal": RefusalPart("No."),
    "server call": ServerCallPart("web_search", "srv_1", {"query": "water"}),
    "server call without more": ServerCallPart("web_search"),
    "server result": ServerResultPart("web_search", "srv_1", []),
    "summary": SummaryPart("They spoke.", changes=[ToolChangePart("added", "look")]),
    "summary of nothing": SummaryPart(),
    "model change": ModelChangePart("a", "b", "refusal"),
    "tool listing": ToolListingPart("box", [ListedTool("look")]),
}
RESULTS: Final[dict[str, str | list[Part] | None]] = {
    "text": "It is blue.",
    "nothing": "",
    "no parts": [],
    "value": [JsonPart({"sky": "blue"})],
    "value that is a text": [JsonPart("blue")],
    "value that is a list": [JsonPart([1, 2])],
    "image": [TextPart("see"), ImagePart(PNG, media_type="image/png")],
    "document": [DocumentPart(PDF, media_type="application/pdf")],
    "search result": [SearchResultPart("here", "A title", [TextPart("found")])],
    "reference": [ToolReferencePart("look")],
}
SERVER_TOOLS: Final[dict[str, ServerTool]] = {
    "search": ServerTool("web_search"),
    "dated search": ServerTool("web_search", "20250305", max_uses=1, allowed_domains=["example.org"]),
    "search near": ServerTool(
        "web_search", context_size="low", place=Region(city="Ulm", country="DE", timezone="Europe/Berlin")
    ),
    "search anywhere": ServerTool("web_search", place=Region()),
    "code": ServerTool("code_execution"),
    "dated code": ServerTool("code_execution", "20250825"),
    "fetch": ServerTool("web_fetch"),
    "dated fetch": ServerTool("web_fetch", "20250910", citations=True, max_tokens=100),
    "files": ServerTool("file_search", sources=["stores/one"]),
    "files of nowhere": ServerTool("file_search"),
    "maps": ServerTool("maps", place=Region(latitude=48.4, longitude=10.0)),
    "computer": ServerTool("computer"),
    "computer in a browser": ServerTool("computer", environment="ENVIRONMENT_BROWSER"),
}
TOOLS: Final[dict[str, list[Tool]]] = {
    "one": [LOOK],
    "without arguments": [BARE],
    "without a description": [Tool("look", None, SCHEMA)],
    "strict": [Tool("look", "Looks", SCHEMA, strict=True)],
    "with all beside": [
        Tool(
            "look", "Looks", SCHEMA, strict=False, cache=CacheHint("5m"), deferred=True,
            examples=[{"at": "home"}], callers=["direct"], result_schema={"type": "object"}, eager=True,
        )
    ],
    "of any schema": [Tool("look", "Looks", {})],
    "of a text": [TYPED],
    "of a text of no form": [Tool("write", text=TextForm())],
    "of a text by a grammar": [Tool("write", text=TextForm("lark", "start: A"))],
    "of a text by half a grammar": [Tool("write", text=TextForm(definition="start: A"))],
    **{name: [LOOK, Tool(server.kind, server=server)] for name, server in SERVER_TOOLS.items()},
}  # fmt: skip
CHOICES: Final[dict[str, Any]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "one": Named("look"),
    "of two": Named("look", ["bare"]),
    "at most one": Named("look", required=False),
    "of a text": Named("write"),
}
FORMS: Final[dict[str, ResponseSchema]] = {
    "any JSON": ResponseSchema(),
    "a schema": ResponseSchema(schema=SCHEMA),
    "a schema of a name": ResponseSchema("answer", SCHEMA),
    "a strict schema": ResponseSchema(schema=SCHEMA, strict=True, description="What it is"),
    "any JSON of a name": ResponseSchema("answer", None, "What it is", True),
}
THINKING: Final[dict[str, Thinking]] = {
    "nothing": Thinking(),
    **{mode: Thinking(mode) for mode in ("on", "off", "auto", "between_calls")},
    "effort": Thinking(effort="low"),
    "budget": Thinking(budget_tokens=2048),
    "on within a budget": Thinking("on", budget_tokens=2048),
    "off with a budget": Thinking("off", budget_tokens=2048),
    **{f"shown {show}": Thinking("on", show=show) for show in ("parsed", "raw", "hidden", "updates")},
    "dropped": Thinking("auto", mismatched="drop", keep=True),
    "dropped alone": Thinking(mismatched="drop"),
    "on with an effort": Thinking("on", "high"),
}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "none": {},
    "drawing": {"max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "seed": 7},
    "penalties": {"frequency_penalty": 0.1, "presence_penalty": 0.2, "repetition_penalty": 1.1},
    "likelihoods": {"logprobs": True, "top_logprobs": 2, "logit_bias": {"5": -100}},
    "stops": {"stop": ["END"]},
    "no stops": {"stop": []},
    "keeping": {"cache": CacheHint("1h"), "cache_key": "k", "cache_ttl": "24h"},
    "serving": {"verbosity": "low", "service_tier": "flex", "parallel_tool_calls": False},
    "several calls": {"parallel_tool_calls": True},
    "a task": {"task_tokens": 50_000, "task_tokens_left": 40_000},
    "shown tools": {"show_server_tools": True},
}


def said(*parts: Part, role: Any = "user") -> Message:
    """A message of these parts."""
    return Message(role, list(parts))


def answered(content: str | list[Part] | None, **fields: Any) -> list[Message]:
    """A call and its result."""
    call = ToolCall("c_1", "look", {"at": "home"})
    return [
        ASKED,
        Message("assistant", None, [call]),
        Message("tool", content, tool_call_id="c_1", **fields),
    ]


def conversations() -> Iterator[tuple[str, list[Message]]]:
    """Conversations with each kind of message and part, by name."""
    yield "plain", [ASKED]
    yield "system", [Message("system", "Be brief."), ASKED]
    yield "system in parts", [said(TextPart("Be brief.", CacheHint()), role="system"), ASKED]
    yield "two systems", [Message("system", "Be brief."), Message("system", "Be kind."), ASKED]
    yield "named", [Message("user", "Hello", name="ann")]
    yield "to keep", [Message("user", "Hello", cache=CacheHint("5m"))]
    yield "nothing said", [Message("user", "")]
    yield "of no parts", [ASKED, Message("assistant", []), ASKED]
    yield "begun", [ASKED, Message("assistant", "It is", prefix=True)]
    yield "refused", [ASKED, Message("assistant", refusal="No."), ASKED]
    yield "silent", [ASKED, Message("assistant"), ASKED]
    yield "thought before", [ASKED, Message("assistant", "Yes", thinking=[ThinkingPart("so", PROOF)]), ASKED]
    yield "two in a row", [ASKED, Message("user", "And now?", turn="new")]
    for name, part in USER_PARTS.items():
        yield f"user: {name}", [said(part)]
        yield f"user: {name}, and words", [said(part, TextPart("What is it?"))]
    for name, part in ASSISTANT_PARTS.items():
        yield f"assistant: {name}", [ASKED, said(part, role="assistant"), ASKED]
    for name, content in RESULTS.items():
        yield f"result: {name}", answered(content)
        yield f"failed result: {name}", answered(content, is_error=True)
    yield "result with a name", answered("blue", name="look", cache=CacheHint())
    calls = [ToolCall("c 1/ü", "look", {}), ToolCall("c_2", "bare", {}, PROOF, cache=CacheHint())]
    results = [Message("tool", "1", tool_call_id="c_2"), Message("tool", "2", tool_call_id="c 1/ü")]
    yield "two calls", [ASKED, Message("assistant", "I look.", calls), *results]
    placed: list[Part] = [TextPart("First."), CallPart("c_2"), CallPart("c 1/ü")]
    yield "placed calls", [ASKED, Message("assistant", placed, calls), *results, ASKED]
    change = said(ToolChangePart("removed", "bare"), role="system")
    later = msgspec.structs.replace(change, turn="new")
    yield "tool change", [ASKED, Message("assistant", "Yes."), later, ASKED]
    typed = ToolCall("c_3", "write", {"input": "words"})
    yield (
        "call of a text",
        [
            ASKED,
            Message("assistant", None, [typed]),
            Message("tool", "ok", tool_call_id="c_3"),
        ],
    )


def shapes() -> Iterator[tuple[str, ChatRequest]]:
    """Each shape by its name."""
    tools = [LOOK, BARE, TYPED]
    for name, messages in conversations():
        yield f"message {name}", ChatRequest(messages=messages, tools=tools)
    for name, declared in TOOLS.items():
        yield f"tool {name}", ChatRequest(messages=[ASKED], tools=declared)
        yield f"tool {name}, called", ChatRequest(messages=answered("blue"), tools=declared)
    for name, choice in CHOICES.items():
        yield f"choice {name}", ChatRequest(messages=[ASKED], tools=tools, tool_choice=choice)
    yield "choice without tools", ChatRequest(messages=[ASKED], tool_choice="auto")
    yield "tools of none", ChatRequest(messages=[ASKED], tools=[], tool_choice="auto")
    for name, form in FORMS.items():
        yield f"form {name}", ChatRequest(messages=[ASKED], response_schema=form)
    for name, thinking in THINKING.items():
        yield f"thinking {name}", ChatRequest(messages=[ASKED], thinking=thinking)
    for name, fields in SETTINGS.items():
        yield f"settings {name}", ChatRequest(messages=[ASKED], **fields)
        yield f"settings {name} with tools", ChatRequest(messages=[ASKED], tools=tools, **fields)
    yield "a grammar", ChatRequest(messages=[ASKED], grammar=TextForm("gbnf", 'root ::= "a"'))


def allowed(request: ChatRequest) -> bool:
    """Whether the contract allows the request."""
    body = msgspec.to_builtins({"params": {}, "input": request})
    contracts().get("llm.chat@2.0").check_request(body)
    return True
