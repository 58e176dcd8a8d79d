"""Every shape of request through the types of the vendors' own SDKs, strictly: nothing that they demand is
missing, and nothing is sent that they do not know. Where a vendor has not what is asked it is refused here,
and not there.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, get_args

import msgspec
import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming as AnthropicBeta
from anthropic.types.message_create_params import MessageCreateParamsStreaming as Anthropic
from botocore.serialize import create_serializer
from google.genai import types as google
from hypothesis import given, settings
from hypothesis import strategies as st
from ollama._types import ChatRequest as Ollama
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming as OpenAI
from pydantic import BaseModel, TypeAdapter, ValidationError

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends.sources import _FETCHED, check_sources
from hearthnet_llm.interface.caller import Caller, CallerRequest
from hearthnet_llm.interface.content_parts import Part
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.media import LIMITS, ImageFitter, prepared
from hearthnet_llm.vendors import wire
from hearthnet_llm.vendors.wire import Json, Target
from tests.conformance.providers.compare import differences
from tests.services.llm import shapes
from tests.services.llm.test_sdks import _operation, _with_bytes

pytestmark = pytest.mark.req("LLM-148")
SHAPES: Final = dict(shapes.shapes())
Check = Callable[[Json], None]


def plain(value: Any) -> Any:
    """A validated value as JSON again."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json", by_alias=True, exclude_unset=True))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | None) else [plain(item) for item in value]


def of_types(*kinds: Any) -> Check:
    """Whether one of the types takes all of a body; the last one says why not."""
    adapters: list[TypeAdapter[Any]] = [TypeAdapter(kind) for kind in kinds]

    def check(body: Json) -> None:
        for adapter in adapters:
            try:
                found = list(differences(body, plain(adapter.validate_python(body)), ()))
            except ValidationError:
                if adapter is adapters[-1]:
                    raise
                continue
            if not found:
                return
        raise AssertionError(found)

    return check


_messages: Final = of_types(Anthropic, AnthropicBeta)
_openai: Final = TypeAdapter[Any](OpenAI)
_ollama: Final = TypeAdapter[Any](Ollama)


def of_compatible(body: Json) -> None:
    """Servers of the same wire take more fields, and demand the same."""
    plain(_openai.validate_python(body))


def of_invoke(body: Json) -> None:
    """Bedrock's envelope holds the version, and has model and stream in the path."""
    assert body["anthropic_version"] == "bedrock-2023-05-31"
    rest = {name: value for name, value in body.items() if name != "anthropic_version"}
    _messages({**rest, "model": "m", "stream": True})


def of_converse(body: Json) -> None:
    """The service model of AWS, as its client goes by it."""
    serializer = create_serializer("rest-json", include_validation=True)
    asked = {"modelId": "m", **_with_bytes(body)}
    made = serializer.serialize_to_request(asked, _operation("ConverseStream"))
    assert json.loads(made["body"]) == body
    assert all(turn["content"] for turn in body["messages"] if turn["role"] == "assistant")


_GEMINI: Final[dict[str, tuple[type[BaseModel], bool]]] = {
    "contents": (google.Content, True),
    "systemInstruction": (google.Content, False),
    "tools": (google.Tool, True),
    "toolConfig": (google.ToolConfig, False),
    "generationConfig": (google.GenerationConfig, False),
}


_BASE64: Final = str.maketrans("-_", "+/")


def of_gemini(body: Json) -> None:
    """Each field by its own type; they refuse what they do not know."""
    for name, value in body.items():
        if name == "serviceTier":
            continue
        kind, many = _GEMINI[name]
        for one in value if many else [value]:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                made = plain(kind.model_validate(one))
            assert not list(differences(_levelled(one), _levelled(made), ()))
    assert all(content.get("parts") for content in body["contents"] if content["role"] == "model")
    thinking = body.get("generationConfig", {}).get("thinkingConfig", {})
    assert not {"thinkingLevel", "thinkingBudget"} <= set(thinking), "refused together"


def _levelled(value: Any) -> Any:
    """The value with base64, and words for levels, in one spelling."""
    if isinstance(value, dict):
        return {key: _levelled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_levelled(item) for item in value]
    return value.translate(_BASE64).lower() if isinstance(value, str) else value


def of_ollama(body: Json) -> None:
    """The type of the whole request."""
    assert plain(_ollama.validate_python(body)) == body


class Vendor(NamedTuple):
    """A wire, where it goes, and the judge."""

    wire: str
    target: Target
    check: Check


VENDORS: Final[dict[str, Vendor]] = {
    "openai": Vendor("openai", Target("gpt-4o", "https://o/v1", "openai"), of_types(OpenAI)),
    "azure": Vendor("openai", Target("gpt-4o", "https://z/openai/v1", "azure"), of_types(OpenAI)),
    "compatible": Vendor("openai", Target("m", "http://box/v1"), of_compatible),
    "anthropic": Vendor("anthropic", Target("claude-sonnet-5", "https://a/v1"), _messages),
    "bedrock messages": Vendor(
        "bedrock-anthropic", Target("anthropic.claude-sonnet-5", "https://b"), of_invoke
    ),
    "bedrock converse": Vendor("bedrock-converse", Target("amazon.nova-pro-v1:0", "https://b"), of_converse),
    "gemini": Vendor("gemini", Target("gemini-2.5-flash", "https://g/v1beta"), of_gemini),
    "ollama": Vendor("ollama", Target("qwen3:4b", "http://l"), of_ollama),
}
TIERS: Final = {"anthropic": "auto", "bedrock messages": "auto"}
"""The word for a service tier is the vendor's own, which is the caller's to know."""
_OTHERS: Final = {
    f"tool {name}{called}"
    for name in shapes.SERVER_TOOLS
    for called in ("", ", called")
    if "search" not in name
}
_FILMS: Final = {name for name in SHAPES if "video" in name}
_SHOWN: Final = {
    f"message {failed}result: {name}" for failed in ("", "failed ") for name in ("image", "document")
}
BEYOND: Final = {"compatible": _OTHERS | _FILMS | _SHOWN}
"""What only some servers of this wire know, and OpenAI's types do not."""
REFUSED: Final = {
    "openai": 33,
    "azure": 33,
    "compatible": 7,
    "anthropic": 27,
    "bedrock messages": 31,
    "bedrock converse": 22,
    "gemini": 16,
    "ollama": 67,
}
"""How many of the shapes each vendor has nothing for."""


FITTER: Final = ImageFitter()


@pytest.fixture(scope="module", autouse=True)
def _end_of_images() -> Iterator[None]:
    """Ends the process that decodes images."""
    yield
    FITTER.close()


def outcome(name: str, request: ChatRequest) -> Json | HearthNetError:
    """What is sent to a vendor for the request, or why nothing is."""
    vendor = VENDORS[name]
    tier = TIERS.get(name, request.service_tier) if request.service_tier else None
    asked = CallerRequest(
        **msgspec.structs.asdict(msgspec.structs.replace(request, stream=True, service_tier=tier)),
        caller=Caller(is_here=True, is_node=True),
    )
    try:
        check_sources(asked, _FETCHED[vendor.wire])
        whole = asyncio.run(prepared(asked, LIMITS[vendor.wire], FITTER))
        body = wire(vendor.wire).encode(whole, vendor.target).body
    except HearthNetError as error:
        return error
    made: Json = json.loads(json.dumps(body))
    return made


@pytest.mark.parametrize("name", VENDORS)
def test_a_vendors_types_take_every_shape(name: str) -> None:
    wrong: dict[str, str] = {}
    refused: Counter[str] = Counter()
    for shape, request in SHAPES.items():
        found = outcome(name, request)
        if isinstance(found, HearthNetError):
            assert found.code == "bad_request", shape
            assert found.details["path"].startswith("/input/"), shape
            refused[found.message] += 1
        elif shape not in BEYOND.get(name, set()):
            try:
                VENDORS[name].check(found)
            except Exception as error:
                wrong[shape] = f"{error}"[:500]
    assert wrong == {}
    assert refused.total() == REFUSED[name], refused


def test_the_contract_allows_every_shape() -> None:
    assert all(shapes.allowed(request) for request in SHAPES.values())
    kinds = {type(part) for _, messages in shapes.conversations() for part in _parts(messages)}
    assert kinds == set(get_args(Part)), "each kind of part is among them"


def _parts(messages: list[Message]) -> Iterator[Any]:
    for message in messages:
        yield from message.content if isinstance(message.content, list) else ()


CONVERSATIONS: Final = dict(shapes.conversations())


@st.composite
def requests(draw: st.DrawFn) -> ChatRequest:
    """A request of several shapes at once."""
    names = draw(st.lists(st.sampled_from(sorted(CONVERSATIONS)), min_size=1, max_size=3))
    told = [message for name in names for message in CONVERSATIONS[name]]
    system = [message for message in told if message.role == "system"]
    messages = [*system, *(message for message in told if message.role != "system"), shapes.ASKED]
    tools = draw(st.sampled_from([None, [], *shapes.TOOLS.values()]))
    words: list[Any] = [None, "auto", "none", "required"]
    fields = draw(st.sampled_from(list(shapes.SETTINGS.values())))
    return ChatRequest(
        messages=[msgspec.structs.replace(message, prefix=None) for message in messages],
        tools=tools,
        tool_choice=draw(st.sampled_from(words if tools else words[:3])),
        response_schema=draw(st.none() | st.sampled_from(list(shapes.FORMS.values()))),
        thinking=draw(st.none() | st.sampled_from(list(shapes.THINKING.values()))),
        **fields,
    )


@pytest.mark.parametrize("name", [name for name in VENDORS if name not in BEYOND])
@settings(max_examples=40, deadline=None)
@given(requests())
def test_a_vendors_types_take_shapes_together(name: str, request_: ChatRequest) -> None:
    found = outcome(name, request_)
    if not isinstance(found, HearthNetError):
        VENDORS[name].check(found)
