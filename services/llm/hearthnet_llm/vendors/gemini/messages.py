"""Contents: turns of parts, with calls and results.

Their ids may be missing; they are then generated when read and omitted when written. A thought is sent only
to the vendor that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.content_parts import (
    CallPart,
    JsonPart,
    Part,
    ServerCallPart,
    ServerResultPart,
    TextPart,
    ThinkingPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.calls import Pairing, is_made_up
from hearthnet_llm.vendors.gemini import parts
from hearthnet_llm.vendors.json_access import entries, fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.role_alternation import (
    assistant_message,
    group_turns,
    marked,
    message_parts,
    user_messages,
)
from hearthnet_llm.vendors.wire import Json

FORMAT: Final = "gemini"
UNSIGNED: Final = "skip_thought_signature_validator"
"""Accepted by the vendor instead of its own proof, for calls that another model made (ai.google.dev, "Thought
signatures").
"""

KINDS: Final = (
    "text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode",
    "codeExecutionResult", "toolCall", "toolResponse",
)  # fmt: skip
SPEAKERS: Final = ("system", "user", "model")
_PROOFS: Final[dict[str, Json]] = {"alone": {}, "thought": {"thought": True}}
"""Forms of a proof without a text, by `proof`, and the fields beside it."""


def thought_choices() -> dict[str, tuple[str, ...]]:
    """Return the choices for the field `thought`, which may be written as false.

    There is one for parts of each kind, by speaker and signature.
    """
    choices = [f"thought.{who}.{kind}" for who in SPEAKERS for kind in KINDS]
    return {f"{one}{signed}": ("when_so", "always") for one in choices for signed in ("", ".signed")}


def _belongs_here(part: Part) -> bool:
    """Return whether this vendor can use a part."""
    if isinstance(part, ServerCallPart | ServerResultPart):
        return parts.is_native(part)
    return not isinstance(part, ThinkingPart) or part.format in (None, FORMAT)


def _choice(speaker: str, part: Json) -> str:
    kind = next((kind for kind in KINDS if kind in part), "")
    return f"thought.{speaker}.{kind}" + (".signed" if part.get("thoughtSignature") else "")


def _proof(part: Json) -> str | None:
    """Return the form of a part that is only a proof, or None for another part."""
    beside = {name: value for name, value in part.items() if name != "thoughtSignature" and value is not None}
    if not part.get("thoughtSignature"):
        return None
    return next((form for form, fields_beside in _PROOFS.items() if fields_beside == beside), None)


class Writer:
    """Writer of one request's contents in the variants of `spelling`.

    `proofs` tells whether the model requires proofs.
    """

    def __init__(self, messages: list[Message], spelling: Mapping[str, str], proofs: bool) -> None:
        self._messages = messages
        self._spelling = spelling
        self._names = {call.id: call.name for message in messages for call in message.tool_calls}
        self._mark = proofs and spelling.get("unsigned") != "plain"

    def write(self) -> Json:
        """Return the field `contents`, and `systemInstruction` if there is such a message."""
        system = [message for message in self._messages if message.role == "system"]
        rest = [message for message in self._messages if message.role != "system"]
        written = (self._content(turn) for turn in group_turns(rest))
        contents = [one for one in written if one.get("role") != "model" or one.get("parts", True)]
        body: Json = {"contents": self._listed(contents, "contents")}
        if system:
            role = self._spelling.get("system_role", "none")
            native = [
                self._thought("system", parts.write(part)) for one in system for part in message_parts(one)
            ]
            named = {} if role == "none" else {"role": role}
            body["systemInstruction"] = {**named, "parts": self._listed(native, "system_parts")}
        return body

    def _listed(self, native: list[Json], choice: str) -> list[Json] | Json:
        """Return a list; one of a single item may be written as the item."""
        return native[0] if len(native) == 1 and self._spelling.get(choice) == "one" else native

    def _content(self, turn: list[Message]) -> Json:
        speaker = "model" if turn[0].role == "assistant" else "user"
        made = [self._thought(speaker, part) for message in turn for part in self._parts(message)]
        role = self._role(turn[0])
        named = {} if role == "none" else {"role": role}
        if not made and self._spelling.get("no_parts") == "absent":
            return named
        return {**named, "parts": self._listed(made, "contents_parts")}

    def _role(self, message: Message) -> str:
        if message.role == "assistant":
            return "model"
        return self._spelling.get("result_role" if message.role == "tool" else "user_role", "user")

    def _part(self, part: Part) -> Json:
        written = parts.write(part)
        if not isinstance(part, ThinkingPart) or part.text is not None:
            return written
        beside = _PROOFS.get(self._spelling.get("proof", "text"))
        return written if beside is None else {**beside, "thoughtSignature": part.signature}

    def _parts(self, message: Message) -> list[Json]:
        if message.role == "tool":
            return [self._result(message)]
        calls = {call.id: call for call in message.tool_calls}
        mark = self._mark and not any(call.signature for call in message.tool_calls)
        made: list[Json] = []
        for part in message_parts(message):
            if isinstance(part, CallPart):
                made.append(self._call(calls[part.id], UNSIGNED if mark else None))
                mark = False
            elif _belongs_here(part):
                made.append(self._part(part))
        return made

    def _call(self, call: ToolCall, unsigned: str | None) -> Json:
        has_arguments = call.arguments or self._spelling.get("no_args") != "absent"
        body: Json = {"name": call.name, **({"args": call.arguments} if has_arguments else {})}
        if not self._ours(call.id):
            body["id"] = call.id
        return {"functionCall": body, **without_nones(thoughtSignature=call.signature or unsigned)}

    def _result(self, message: Message) -> Json:
        known = str(message.tool_call_id)
        name = message.name or self._names.get(known)
        if name is None:
            refuse("/input/messages", f"the result of {known} names no tool, and no call has this id")
        content = message.content
        content_parts: list[Part] = [TextPart(content)] if isinstance(content, str) else [*(content or ())]
        media = [part for part in content_parts if not isinstance(part, TextPart | JsonPart)]
        body: Json = {"name": name, "response": _response(content_parts, bool(message.is_error))}
        if len(media) == len(content_parts) and media and self._spelling.get("media_result") == "absent":
            del body["response"]
        if not self._ours(known):
            body["id"] = known
        if media:
            body["parts"] = [parts.write(part) for part in media]
        return {"functionResponse": body}

    def _ours(self, call_id: str) -> bool:
        """Return whether an id is omitted for the vendor; one like ours may be another client's."""
        return is_made_up(call_id) and self._spelling.get("short_ids") != "sent"

    def _thought(self, speaker: str, part: Json) -> Json:
        """Add the field `thought` as false, which some clients write for some or all parts."""
        return {"thought": False, **part} if self._spelling.get(_choice(speaker, part)) == "always" else part


def _response(content: list[Part], failed: bool) -> Json:
    """Return the object that a result must be: its own, or its text as `output` or `error`."""
    values = [part.value for part in content if isinstance(part, JsonPart)]
    if len(values) == 1 and isinstance(values[0], dict) and not failed:
        return values[0]
    texts = [part.text for part in content if isinstance(part, TextPart)]
    value = values[0] if len(values) == 1 and not texts else "\n".join(texts)
    return {"error" if failed else "output": value}


class ContentsReader:
    """Reader of one native request's contents; records their variants in `spelling`."""

    def __init__(self, spelling: dict[str, str]) -> None:
        self._spelling = spelling
        self._pairing = Pairing()
        self._signed = True

    def read(self, body: Json) -> list[Message]:
        """Return all messages."""
        made: list[Message] = []
        if body.get("systemInstruction") is not None:
            system = fields(body["systemInstruction"], "systemInstruction")
            self._spelling["system_role"] = str(system.get("role") or "none")
            native = self._parts("system", system.get("parts"), "systemInstruction.parts")
            made.append(Message(role="system", content=[parts.read(part, path) for part, path in native]))
        contents = self._listed(body.get("contents"), "contents", "contents")
        made += marked([self._turn(one, path) for one, path in contents])
        self._spelling["unsigned"] = "marked" if self._signed else "plain"
        return made

    def _listed(self, native: Any, where: str, choice: str) -> list[tuple[Json, str]]:
        if isinstance(native, dict):
            self._spelling[choice] = "one"
            native = [native]
        return entries(native, where)

    def _parts(self, speaker: str, native: Any, where: str) -> list[tuple[Json, str]]:
        listed = self._listed(native, where, "system_parts" if speaker == "system" else "contents_parts")
        for part, _ in listed:
            if part.get("thought") is False:
                self._spelling[_choice(speaker, part)] = "always"
        return listed

    def _turn(self, native: Json, where: str) -> list[Message]:
        role = native.get("role")
        if native.get("parts") is None:
            self._spelling["no_parts"] = "absent"
        speaker = "model" if role == "model" else "user"
        listed = self._parts(speaker, native.get("parts"), f"{where}.parts")
        match role:
            case "model":
                return [self._model(listed)]
            case "user" | "function" | "tool" | None:
                answers = any(part.get("functionResponse") is not None for part, _ in listed)
                self._spelling["result_role" if answers else "user_role"] = role or "none"
                return user_messages(self._read_users(part, path) for part, path in listed)
            case _:
                refuse(f"{where}.role", f"{role!r} is no role of this wire")

    def _read_users(self, part: Json, where: str) -> Part | Message:
        """Return a result, or another part of a user's content."""
        if part.get("functionResponse") is not None:
            return self._result(part["functionResponse"], f"{where}.functionResponse")
        return parts.read(part, where)

    def _result(self, value: Any, where: str) -> Message:
        native = fields(value, where)
        name = text(native.get("name"), f"{where}.name")
        for odd in ("scheduling", "willContinue"):
            if native.get(odd) is not None:
                refuse(f"{where}.{odd}", "results that come later or in pieces are not known; leave it out")
        media = [parts.read_media(one, where) for one in objects(native.get("parts"), f"{where}.parts")]
        content = self._result_content(native.get("response"), media, where)
        return Message(
            role="tool",
            content=content,
            tool_call_id=self._pairing.answered(self._noted(native.get("id")), name),
            is_error=True if isinstance(content, str) else None,
            name=name,
        )

    def _noted(self, vendors_id: Any) -> Any:
        if isinstance(vendors_id, str) and is_made_up(vendors_id):
            self._spelling["short_ids"] = "sent"
        return vendors_id

    def _result_content(self, native: Any, media: list[parts.Media], where: str) -> str | list[Part]:
        """Return the content of a result: its object and media, or the text of a failure."""
        if native is None and media:
            self._spelling["media_result"] = "absent"
            return [*media]
        response = fields(native, f"{where}.response")
        error = response.get("error")
        if len(response) == 1 and isinstance(error, str) and not media:
            return error
        return [JsonPart(response), *media]

    def _model(self, listed: list[tuple[Json, str]]) -> Message:
        message = assistant_message(self._read_models(part, path) for part, path in listed)
        if message.tool_calls and not any(call.signature for call in message.tool_calls):
            self._signed = False
        self._pairing.begin(message.tool_calls)
        return message

    def _read_models(self, part: Json, where: str) -> Part | ToolCall:
        """Return a call, or another part of the model's content."""
        if part.get("functionCall") is not None:
            native = fields(part["functionCall"], f"{where}.functionCall")
            return self._call(native, part.get("thoughtSignature"), where)
        if (proof := _proof(part)) is None:
            return parts.read(part, where)
        self._spelling["proof"] = proof
        return ThinkingPart(signature=text(part["thoughtSignature"], where))

    def _call(self, native: Json, signature: Any, where: str) -> ToolCall:
        name = text(native.get("name"), f"{where}.functionCall.name")
        if native.get("args") is None:
            self._spelling["no_args"] = "absent"
        identity = self._pairing.ids.assign(self._noted(native.get("id")))
        return ToolCall(identity, name, native.get("args") or {}, signature)
