"""What a message is made of: text, media by reference or value, and what the model thought (llm.chat@2.0).

A closed union, told apart by `type`. Nothing here is any vendor's JSON: each field has one meaning, whoever
serves the model (docs/models.md).
"""

from __future__ import annotations

from typing import Literal

import msgspec


class CacheHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """All up to here is asked again soon; `ttl` is how long the vendor should keep it, such as 5m or 1h."""

    ttl: str | None = None


class TextPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="text"):
    """A piece of text of a message."""

    text: str
    cache: CacheHint | None = None


class _Media(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Bytes of `media_type` from exactly one place: base64 `data`, a `url`, or a `file_id` at the vendor."""

    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    cache: CacheHint | None = None


class ImagePart(_Media, frozen=True, omit_defaults=True, tag="image"):
    """An image; on the mesh by the content hash of its blob. `detail`: how closely to look."""

    image_cid: str | None = None
    detail: str | None = None


class AudioPart(_Media, frozen=True, omit_defaults=True, tag="audio"):
    """A recording."""


class DocumentPart(_Media, frozen=True, omit_defaults=True, tag="document"):
    """A document, such as a PDF; `name` is what the model calls it."""

    name: str | None = None


class ThinkingPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="thinking"):
    """What the model thought, to be handed back to it unchanged.

    `signature` and `data` (thoughts that only the vendor can read) are opaque. `kind` None is plain text;
    `id`, `format` and `index` are kept where the vendor gave them.
    """

    text: str | None = None
    signature: str | None = None
    data: str | None = None
    kind: Literal["text", "summary", "encrypted"] | None = None
    id: str | None = None
    format: str | None = None
    index: int | None = None


class RefusalPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="refusal"):
    """The model's words for not answering."""

    text: str


Part = TextPart | ImagePart | AudioPart | DocumentPart | ThinkingPart | RefusalPart
