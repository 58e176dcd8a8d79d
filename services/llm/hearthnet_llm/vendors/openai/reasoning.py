"""Thoughts of a model, in answers and in later requests, under each vendor's name for them.

The names are `reasoning_content`, `reasoning`, `reasoning_text`, `reasoning_details` (typed, signed or
encrypted pieces), and parts of the content. Several names in one answer repeat the same thought; one of them
is shown, and the typed pieces are returned to the vendor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hearthnet_llm.interface.content_parts import ThinkingPart
from hearthnet_llm.interface.frames import ReasoningBlock, ReasoningDelta
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.field_tables import read_fields, same_names, write_fields
from hearthnet_llm.vendors.json_access import objects, text, value_at, without_nones
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.wire import Json

_PLAIN = ("reasoning_content", "reasoning", "reasoning_text")
_PROOFS = ("thought_signature", "reasoning_signature", "reasoning_opaque", "signature")
_KINDS = ("text", "summary", "encrypted")
_OPAQUE: Final = same_names("id", "format", "signature", "data")
_DETAILS: Final = "reasoning."
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
    "both": ("reasoning_content", "reasoning"),
    "reasoning_text": ("reasoning_text",),
}
_SIGNED: Final[dict[str, str]] = {
    "extra_content": "extra_content.google.thought_signature",
    "reasoning_signature": "reasoning_signature",
    "reasoning_opaque": "reasoning_opaque",
}


class Thoughts:
    """The thoughts of one answer."""

    def __init__(self) -> None:
        self._plain: list[str] = []
        self._typed: dict[tuple[str, Any], tuple[Json, list[str]]] = {}
        self._signature: str | None = None
        self._closed: bool | None = None

    @property
    def size(self) -> int:
        """Number of characters so far."""
        return sum(map(len, self._plain))

    def feed(self, delta: Mapping[str, Any]) -> Iterator[ReasoningDelta]:
        """Yield the thinking in one delta, or in a complete message."""
        details = delta.get("reasoning_details")
        words = [self._detail(one) for one in details if isinstance(one, Mapping)] if details else []
        plain = (delta.get(name) for name in _PLAIN)
        yield from self._text_frames(
            next((text for text in plain if isinstance(text, str) and text), "".join(words))
        )
        self._sign(delta)

    def part(self, part: Mapping[str, Any]) -> Iterator[ReasoningDelta]:
        """Yield the thinking in one part of the content: texts under either of two names."""
        pieces = part.get("thinking") or part.get("summary") or ()
        if isinstance(part.get("closed"), bool):
            self._closed = part["closed"]
        if isinstance(pieces, str):
            yield from self._text_frames(pieces)
            return
        for piece in pieces:
            if isinstance(piece, Mapping):
                yield from self._text_frames(str(piece.get("text") or ""))
                self._sign(piece)

    def _text_frames(self, text: str) -> Iterator[ReasoningDelta]:
        if text:
            self._plain.append(text)
            yield ReasoningDelta(text)

    def _sign(self, native: Mapping[str, Any]) -> None:
        for name in _PROOFS:
            if isinstance(native.get(name), str):
                self._signature = native[name]

    def finish(self) -> Iterator[ReasoningBlock]:
        """Yield each complete thought."""
        for values, texts in self._typed.values():
            yield ReasoningBlock(ThinkingPart("".join(texts) or None, **values))
        if not self._typed and (self._plain or self._signature):
            said = "".join(self._plain) or None
            yield ReasoningBlock(ThinkingPart(text=said, signature=self._signature, closed=self._closed))

    def _detail(self, detail: Mapping[str, Any]) -> str:
        """Add a typed piece to its thought and return its text."""
        kind = str(detail.get("type") or "").removeprefix(_DETAILS)
        if kind not in _KINDS:
            return ""
        index = detail.get("index")
        new = {"kind": kind, "index": index if isinstance(index, int) else None}
        values, texts = self._typed.setdefault((kind, index), (new, []))
        values |= {name: detail[name] for name in _OPAQUE if isinstance(detail.get(name), str)}
        words = detail.get("summary" if kind == "summary" else "text")
        if not isinstance(words, str):
            return ""
        texts.append(words)
        return words


def write(message: Message, choices: Choices) -> Json:
    """Return the fields of a native message for its thoughts."""
    form = choices["thoughts"]
    thoughts = [*(message.thinking or ()), *([] if form == "content" else _among(message))]
    body: Json = {}
    said = [one.text for one in thoughts if one.kind is None and one.text is not None]
    if said:
        body |= dict.fromkeys(_NAMES.get(form, ()), "".join(said))
    details = [_detail(one) for one in thoughts if one.kind is not None]
    if (details and form != "none") or (message.thinking == [] and choices["no_thoughts"] == "empty"):
        body["reasoning_details"] = details
    proofs = [one.signature for one in thoughts if one.kind is None and one.signature is not None]
    return body | write_signature(next(iter(proofs), None), choices, tuple(_SIGNED))


def write_signature(signature: str | None, choices: Choices, forms: tuple[str, ...]) -> Json:
    """Return the field of a proof if the vendor has one of these `forms`, else nothing."""
    form = choices["signatures"]
    if signature is None or form not in forms:
        return {}
    made: Any = signature
    for step in reversed(_SIGNED[form].split(".")):
        made = {step: made}
    return dict(made)


def _among(message: Message) -> list[ThinkingPart]:
    """Return the thoughts among the content."""
    if not isinstance(message.content, list):
        return []
    return [part for part in message.content if isinstance(part, ThinkingPart)]


def _detail(thought: ThinkingPart) -> Json:
    words = {"summary" if thought.kind == "summary" else "text": thought.text}
    return {
        "type": f"{_DETAILS}{thought.kind}",
        **without_nones(**words),
        **write_fields(thought, {**_OPAQUE, "index": "index"}),
    }


def read(message: Json, path: str, spelling: dict[str, str]) -> list[Json] | None:
    """Return the thoughts of a native message, or None if it has no field for them."""
    plain = [name for name in _PLAIN if message.get(name) is not None]
    details = message.get("reasoning_details")
    signature = read_signature(message, spelling)
    if not plain and details is None and signature is None:
        return None
    if details == []:
        spelling["no_thoughts"] = "empty"
    if plain:
        spelling["thoughts"] = "both" if len(plain) > 1 else plain[0]
    elif details is not None:
        spelling.setdefault("thoughts", "reasoning")
    made: list[Json] = []
    if plain or signature is not None:
        said = text(message[plain[0]], f"{path}.{plain[0]}") if plain else None
        made.append({"type": "thinking", **without_nones(text=said, signature=signature)})
    return [*made, *(_read_detail(one) for one in objects(details, f"{path}.reasoning_details"))]


def read_signature(native: Json, spelling: dict[str, str]) -> Any:
    """Return the proof in a native message or call, in any form, or None."""
    for form, path in _SIGNED.items():
        value = value_at(native, path)
        if value is not None:
            spelling["signatures"] = form
            return value
    return None


def _read_detail(detail: Json) -> Json:
    kind = str(detail.get("type", "")).removeprefix(_DETAILS)
    opaque = read_fields(detail, {**_OPAQUE, "index": "index"})
    words = detail.get("summary" if kind == "summary" else "text")
    return {"type": "thinking", "kind": kind, **without_nones(text=words, **opaque)}
