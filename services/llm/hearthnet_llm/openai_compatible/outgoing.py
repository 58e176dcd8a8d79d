"""A request as OpenAI's Chat Completions wants it: one small mapper a part, no I/O (seed 003, the mapping
table).
"""

from __future__ import annotations

import json
from typing import Any

from hearthnet_llm.frames import ToolCall
from hearthnet_llm.request import ChatRequest, CompleteRequest, Message, Named, Sampling, Tool, ToolChoice

Json = dict[str, Any]
ERROR_MARK = "ERROR: "


def chat_body(request: ChatRequest, model: str) -> Json:
    """The JSON body of POST /chat/completions."""
    body: Json = {"model": model, "messages": [_message(message) for message in request.messages]}
    body |= _sampling(request.sampling)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _choice(request.tool_choice or "auto")
    if request.response_schema is not None:
        named = {"name": request.response_schema.name, "schema": request.response_schema.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    return body


def complete_body(request: CompleteRequest, model: str) -> Json:
    """The JSON body of POST /completions."""
    return {"model": model, "prompt": request.prompt, **_sampling(request.sampling)}


def _sampling(sampling: Sampling) -> Json:
    body: Json = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if sampling.stop:
        body["stop"] = sampling.stop
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body


def _message(message: Message) -> Json:
    if message.role == "tool":
        content = f"{ERROR_MARK}{message.text}" if message.is_error else message.text
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
    body: Json = {"role": message.role, "content": message.text}
    if message.tool_calls:
        body["content"] = message.text or None
        body["tool_calls"] = [_call(call) for call in message.tool_calls]
    return body


def _call(call: ToolCall) -> Json:
    arguments = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool(tool: Tool) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters_schema}
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> str | Json:
    if isinstance(choice, Named):
        return {"type": "function", "function": {"name": choice.name}}
    return choice
