"""Contents in both directions: turns of parts; calls and results, whose ids may be missing and are then made
up when they are read and left out when they are written.

A thought is handed back only if it is this vendor's; those of others are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.frames import ToolCall
from hearthnet_llm.parts import CallPart, JsonPart, Part, TextPart, ThinkingPart
from hearthnet_llm.request import Message
from hearthnet_llm.vendors.calls import is_made_up
from hearthnet_llm.vendors.gemini import parts
from hearthnet_llm.vendors.pairing import Pairing
from hearthnet_llm.vendors.reading import fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.turns import marked, said, turns, unplaced
from hearthnet_llm.vendors.wire import Json

FORMAT: Final = "gemini"
UNSIGNED: Final = "skip_thought_signature_validator"
"""What the vendor takes instead of its own proof, for calls that another model made (ai.google.dev, "Thought
signatures")."""


class Writer:
    """Contents of one request, written as `spelling` has it. `proofs`: whether the model wants proofs."""

    def __init__(self, messages: list[Message], spelling: Mapping[str, str], proofs: bool) -> None:
        self._messages = messages
        self._spelling = spelling
        self._names = {call.id: call.name for message in messages for call in message.tool_calls}
        self._mark = proofs and spelling.get("unsigned") != "plain"

    def write(self) -> Json:
        """The fields `contents` and, where there is such a message, `systemInstruction`."""
        system = [message for message in self._messages if message.role == "system"]
        rest = [message for message in self._messages if message.role != "system"]
        body: Json = {"contents": [self._content(turn) for turn in turns(rest)]}
        if system:
            role = self._spelling.get("system_role", "none")
            native = [self._thought(parts.write(part)) for one in system for part in said(one)]
            named = {} if role == "none" else {"role": role}
            body["systemInstruction"] = {**named, "parts": self._listed(native, "system_parts")}
        return body

    def _listed(self, native: list[Json], choice: str) -> list[Json] | Json:
        """A list of one may be written as the one."""
        return native[0] if len(native) == 1 and self._spelling.get(choice) == "one" else native

    def _content(self, turn: list[Message]) -> Json:
        made = [self._thought(part) for message in turn for part in self._parts(message)]
        role = self._role(turn[0])
        return {**({} if role == "none" else {"role": role}), "parts": self._listed(made, "contents_parts")}

    def _role(self, message: Message) -> str:
        if message.role == "assistant":
            return "model"
        return self._spelling.get("result_role" if message.role == "tool" else "user_role", "user")

    def _part(self, part: Part) -> Json:
        alone = (
            isinstance(part, ThinkingPart) and part.text is None and self._spelling.get("proof") == "alone"
        )
        written = parts.write(part)
        return {"thoughtSignature": written["thoughtSignature"]} if alone else written

    def _parts(self, message: Message) -> list[Json]:
        if message.role == "tool":
            return [self._result(message)]
        calls = {call.id: call for call in message.tool_calls}
        mark = self._mark and not any(call.signature for call in message.tool_calls)
        made: list[Json] = []
        for part in said(message):
            if isinstance(part, CallPart):
                made.append(self._call(calls[part.id], UNSIGNED if mark else None))
                mark = False
            elif not isinstance(part, ThinkingPart) or part.format in (None, FORMAT):
                made.append(self._part(part))
        return made

    def _call(self, call: ToolCall, unsigned: str | None) -> Json:
        given = call.arguments or self._spelling.get("no_args") != "absent"
        body: Json = {"name": call.name, **({"args": call.arguments} if given else {})}
        if not is_made_up(call.id):
            body["id"] = call.id
        return {"functionCall": body, **without_nones(thoughtSignature=call.signature or unsigned)}

    def _result(self, message: Message) -> Json:
        known = str(message.tool_call_id)
        name = message.name or self._names.get(known)
        if name is None:
            refuse("/input/messages", f"the result of {known} names no tool, and no call has this id")
        content = message.content
        given: list[Part] = [TextPart(content)] if isinstance(content, str) else [*(content or ())]
        media = [part for part in given if not isinstance(part, TextPart | JsonPart)]
        body: Json = {"name": name, "response": _response(given, bool(message.is_error))}
        if not is_made_up(known):
            body["id"] = known
        if media:
            body["parts"] = [parts.write(part) for part in media]
        return {"functionResponse": body}

    def _thought(self, part: Json) -> Json:
        """Some clients say of every part whether it is a thought."""
        return {"thought": False, **part} if self._spelling.get("thought") == "always" else part


def _response(given: list[Part], failed: bool) -> Json:
    """The object that a result must be here: its own, or its text as `output` or `error`."""
    values = [part.value for part in given if isinstance(part, JsonPart)]
    if len(values) == 1 and isinstance(values[0], dict) and not failed:
        return values[0]
    texts = [part.text for part in given if isinstance(part, TextPart)]
    value = values[0] if len(values) == 1 and not texts else "\n".join(texts)
    return {"error" if failed else "output": value}


class Reader:
    """Messages out of the contents of one native request; notes in `spelling` how they stood."""

    def __init__(self, spelling: dict[str, str]) -> None:
        self._spelling = spelling
        self._pairing = Pairing()
        self._signed = True

    def read(self, body: Json) -> list[Message]:
        """All messages."""
        made: list[Message] = []
        if body.get("systemInstruction") is not None:
            system = fields(body["systemInstruction"], "systemInstruction")
            self._spelling["system_role"] = str(system.get("role") or "none")
            native = self._listed(system.get("parts"), "systemInstruction.parts", "system_parts")
            read = [parts.read(part, "systemInstruction.parts") for part in native]
            made.append(Message(role="system", content=read))
        contents = objects(body.get("contents"), "contents")
        made += marked([self._turn(one, f"contents[{place}]") for place, one in enumerate(contents)])
        self._spelling["unsigned"] = "marked" if self._signed else "plain"
        return made

    def _listed(self, native: Any, where: str, choice: str) -> list[Json]:
        if isinstance(native, dict):
            self._spelling[choice] = "one"
            native = [native]
        found = objects(native, where)
        if any(part.get("thought") is False for part in found):
            self._spelling["thought"] = "always"
        return found

    def _turn(self, native: Json, where: str) -> list[Message]:
        role = native.get("role")
        listed = self._listed(native.get("parts"), f"{where}.parts", "contents_parts")
        match role:
            case "model":
                return [self._model(listed, f"{where}.parts")]
            case "user" | "function" | "tool" | None:
                if any(part.get("functionResponse") is not None for part in listed):
                    self._spelling["result_role"] = role or "none"
                else:
                    self._spelling["user_role"] = role or "none"
                return self._user(listed, f"{where}.parts")
            case _:
                refuse(f"{where}.role", f"{role!r} is no role of this wire")

    def _user(self, listed: list[Json], where: str) -> list[Message]:
        """One message for each result and one for each run of what the user says."""
        made: list[Message] = []
        saying: list[Part] | None = None
        for place, part in enumerate(listed):
            if part.get("functionResponse") is not None:
                made.append(self._result(part["functionResponse"], f"{where}[{place}].functionResponse"))
                saying = None
            else:
                if saying is None:
                    saying = []
                    made.append(Message(role="user", content=saying))
                saying.append(parts.read(part, f"{where}[{place}]"))
        return made or [Message(role="user", content=[])]

    def _result(self, given: Any, where: str) -> Message:
        native = fields(given, where)
        name = text(native.get("name"), f"{where}.name")
        response = fields(native.get("response"), f"{where}.response")
        media = [parts.read_media(one, where) for one in objects(native.get("parts"), f"{where}.parts")]
        failed = list(response) == ["error"] and isinstance(response["error"], str)
        content: str | list[Part] = (
            response["error"] if failed and not media else [JsonPart(response), *media]
        )
        return Message(
            role="tool",
            content=content,
            tool_call_id=self._pairing.answered(native.get("id"), name),
            is_error=True if isinstance(content, str) else None,
            name=name,
        )

    def _model(self, listed: list[Json], where: str) -> Message:
        read: list[Part] = []
        calls: list[ToolCall] = []
        for place, part in enumerate(listed):
            if part.get("functionCall") is not None:
                native = fields(part["functionCall"], f"{where}[{place}].functionCall")
                calls.append(self._call(native, part.get("thoughtSignature"), f"{where}[{place}]"))
                read.append(CallPart(calls[-1].id))
            elif list(part) == ["thoughtSignature"]:
                self._spelling["proof"] = "alone"
                read.append(ThinkingPart(signature=text(part["thoughtSignature"], f"{where}[{place}]")))
            else:
                read.append(parts.read(part, f"{where}[{place}]"))
        if calls and not any(call.signature for call in calls):
            self._signed = False
        self._pairing.asked(calls)
        said_first = unplaced(read)
        content = None if calls and not said_first else said_first
        return Message(role="assistant", content=content, tool_calls=calls)

    def _call(self, native: Json, signature: Any, where: str) -> ToolCall:
        name = text(native.get("name"), f"{where}.functionCall.name")
        if native.get("args") is None:
            self._spelling["no_args"] = "absent"
        made = ToolCall(self._pairing.called(native.get("id")), name, native.get("args") or {})
        return msgspec.structs.replace(made, signature=signature)
