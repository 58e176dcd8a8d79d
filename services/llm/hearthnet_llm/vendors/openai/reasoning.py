"""Thoughts of a model, under each vendor's name for them.

The names are `reasoning_content`, `reasoning`, `reasoning_text`, `reasoning_details` (typed, signed or
encrypted pieces), and parts of the content. Several names in one answer repeat the same thought; one of them
is shown, and the typed pieces are returned to the vendor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import msgspec

from hearthnet_llm.interface.content_parts import ThinkingPart
from hearthnet_llm.interface.frames import ReasoningBlock, ReasoningDelta

_PLAIN = ("reasoning_content", "reasoning", "reasoning_text")
_PROOFS = ("thought_signature", "reasoning_signature", "reasoning_opaque", "signature")
_KINDS = ("text", "summary", "encrypted")
_Kind = Literal["text", "summary", "encrypted"]


class _Open(msgspec.Struct):
    """A typed thought that is still arriving."""

    kind: _Kind
    index: int | None
    texts: list[str]
    id: str | None = None
    format: str | None = None
    signature: str | None = None
    data: str | None = None


class Thoughts:
    """The thoughts of one answer."""

    def __init__(self) -> None:
        self._plain: list[str] = []
        self._typed: dict[tuple[str, Any], _Open] = {}
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
        yield from self._say(next((text for text in plain if isinstance(text, str) and text), "".join(words)))
        self._sign(delta)

    def part(self, part: Mapping[str, Any]) -> Iterator[ReasoningDelta]:
        """Yield the thinking in one part of the content: texts under either of two names."""
        pieces = part.get("thinking") or part.get("summary") or ()
        if isinstance(part.get("closed"), bool):
            self._closed = part["closed"]
        if isinstance(pieces, str):
            yield from self._say(pieces)
            return
        for piece in pieces:
            if isinstance(piece, Mapping):
                yield from self._say(str(piece.get("text") or ""))
                self._sign(piece)

    def _say(self, text: str) -> Iterator[ReasoningDelta]:
        if text:
            self._plain.append(text)
            yield ReasoningDelta(text)

    def _sign(self, said: Mapping[str, Any]) -> None:
        for name in _PROOFS:
            if isinstance(said.get(name), str):
                self._signature = said[name]

    def finish(self) -> Iterator[ReasoningBlock]:
        """Yield each complete thought."""
        for one in self._typed.values():
            text = "".join(one.texts)
            yield ReasoningBlock(
                ThinkingPart(
                    text=text or None,
                    signature=one.signature,
                    data=one.data,
                    kind=one.kind,
                    id=one.id,
                    format=one.format,
                    index=one.index,
                )
            )
        if not self._typed and (self._plain or self._signature):
            said = "".join(self._plain) or None
            yield ReasoningBlock(ThinkingPart(text=said, signature=self._signature, closed=self._closed))

    def _detail(self, detail: Mapping[str, Any]) -> str:
        """Add a typed piece to its thought and return its text."""
        kind = str(detail.get("type") or "").removeprefix("reasoning.")
        if kind not in _KINDS:
            return ""
        index = detail.get("index")
        one = self._typed.setdefault(
            (kind, index), _Open(cast(_Kind, kind), index if isinstance(index, int) else None, [])
        )
        for name in ("id", "format", "signature", "data"):
            value = detail.get(name)
            if isinstance(value, str):
                setattr(one, name, value)
        words = detail.get("summary" if kind == "summary" else "text")
        if not isinstance(words, str):
            return ""
        one.texts.append(words)
        return words
