"""The frames that services send, held against the contracts of their streams."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from hearthnet.contracts.registry import contracts
from hearthnet_llm.interface.content_parts import Citation, ServerCallPart, ThinkingPart
from hearthnet_llm.interface.frames import (
    CitationEvent,
    ContentFrame,
    Continued,
    Frame,
    Notice,
    PrefillProgress,
    ReasoningBlock,
    ReasoningDelta,
    ServerToolEvent,
    StopReason,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    to_event,
)

SERVICES = Path(__file__).resolve().parents[2] / "services"
EXAMPLES: dict[type, ContentFrame] = {
    type(frame): frame
    for frame in (
        TextDelta("Hi"),
        CitationEvent(Citation(kind="web", url="https://example.org")),
        ReasoningDelta("so"),
        ReasoningBlock(ThinkingPart("so", "proof")),
        ServerToolEvent(ServerCallPart("web_search", "s1", {"query": "water"})),
        ToolCallDelta("c1", '{"q', "search"),
        ToolCall("c1", "search", {"query": "water"}),
        Notice("other_model", "a cannot be reached; b answers instead"),
        PrefillProgress("reading", 1, 2),
    )
}


def events(tree: ast.AST) -> Iterator[str]:
    """The names of frames that a module sends to a stream of its own."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        first = node.args[0] if node.args else None
        if ast.unparse(node.func.value) != "stream":
            continue
        if node.func.attr in ("send", "end") and isinstance(first, ast.Constant):
            yield str(first.value)
        elif node.func.attr == "progress":
            yield "progress"


def capabilities(tree: ast.AST) -> Iterator[str]:
    """The capabilities that a module has handlers for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "capability" and node.args:
            yield str(ast.literal_eval(node.args[0]))


def trees(service: Path) -> list[ast.Module]:
    """The modules of a service."""
    return [ast.parse(file.read_text(encoding="utf-8")) for file in sorted(service.rglob("*.py"))]


@pytest.mark.req("CONTRACT-31")
@pytest.mark.parametrize(
    ("capability", "frames"),
    [("llm.chat@2.0", get_args(ContentFrame)), ("llm.complete@1.0", get_args(Continued))],
)
def test_each_frame_of_a_model_fits_its_contract(capability: str, frames: tuple[type[Frame], ...]) -> None:
    assert set(EXAMPLES) == set(get_args(ContentFrame)), "a new frame needs an example here"
    for frame in frames:
        contracts().get(capability).check_frame(*to_event(EXAMPLES[frame]))


@pytest.mark.req("CONTRACT-31")
@pytest.mark.parametrize("capability", ["llm.chat@2.0", "llm.complete@1.0"])
def test_each_reason_to_end_is_one_of_the_contract(capability: str) -> None:
    schema = contracts().get(capability).stream_schema or {}
    known = set(schema["done"]["properties"]["stop_reason"]["enum"])
    assert set(get_args(StopReason)) - known <= (
        {"tool_calls"} if capability.startswith("llm.complete") else set()
    )


@pytest.mark.req("CONTRACT-31")
def test_each_frame_a_service_names_is_of_a_contract_of_its() -> None:
    sending = {}
    for service in sorted(one for one in SERVICES.iterdir() if one.is_dir()):
        modules = trees(service)
        sent = {event for tree in modules for event in events(tree)}
        offered = {name for tree in modules for name in capabilities(tree)}
        known = {event for name in offered for event in contracts().get(name).stream_schema or {}}
        if offered and sent:
            sending[service.name] = sent - known
    assert sending == {"file": set(), "llm": set(), "rag": set()}
