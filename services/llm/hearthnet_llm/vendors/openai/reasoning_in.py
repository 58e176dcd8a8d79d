"""Thoughts of earlier turns in later requests, under each vendor's name or not at all."""

from __future__ import annotations

from typing import Any, Final

from hearthnet_llm.interface.content_parts import ThinkingPart
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.json_access import objects, text, without_nones
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.wire import Json

_DETAILS: Final = "reasoning."
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
    "both": ("reasoning_content", "reasoning"),
    "reasoning_text": ("reasoning_text",),
}
_SIGNED: Final[dict[str, tuple[str, ...]]] = {
    "extra_content": ("extra_content", "google", "thought_signature"),
    "reasoning_signature": ("reasoning_signature",),
    "reasoning_opaque": ("reasoning_opaque",),
}


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
    for step in reversed(_SIGNED[form]):
        made = {step: made}
    return dict(made)


def _among(message: Message) -> list[ThinkingPart]:
    """Return the thoughts among the content."""
    if not isinstance(message.content, list):
        return []
    return [part for part in message.content if isinstance(part, ThinkingPart)]


def _detail(thought: ThinkingPart) -> Json:
    words = {"summary" if thought.kind == "summary" else "text": thought.text}
    named = {name: getattr(thought, name) for name in ("id", "format", "index", "signature", "data")}
    return {"type": f"{_DETAILS}{thought.kind}", **without_nones(**words, **named)}


def read(message: Json, path: str, spelling: dict[str, str]) -> list[Json] | None:
    """Return the thoughts of a native message, or None if it has no field for them."""
    plain = [
        name for name in ("reasoning_content", "reasoning", "reasoning_text") if message.get(name) is not None
    ]
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
        value: Any = native
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None:
            spelling["signatures"] = form
            return value
    return None


def _read_detail(detail: Json) -> Json:
    kind = str(detail.get("type", "")).removeprefix(_DETAILS)
    opaque = {key: detail.get(key) for key in ("id", "format", "index", "signature", "data")}
    words = detail.get("summary" if kind == "summary" else "text")
    return {"type": "thinking", "kind": kind, **without_nones(text=words, **opaque)}
