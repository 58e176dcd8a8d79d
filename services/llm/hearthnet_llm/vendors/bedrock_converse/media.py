"""Images, documents, videos and recordings of Converse: a format by name, and a source.

The bytes are in the request or in S3, so a URL must begin with s3://. The owner of the bucket is appended to
such a URL as ?bucketOwner=.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hearthnet_llm.interface.content_parts import AudioPart, DocumentPart, ImagePart, TextPart, VideoPart
from hearthnet_llm.vendors.field_tables import read_fields, same_names, write_fields
from hearthnet_llm.vendors.json_access import entries, fields, refuse, text, without_nones
from hearthnet_llm.vendors.wire import Json

_TYPES: Final[dict[str, str]] = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "wmv": "video/x-ms-wmv",
    "flv": "video/x-flv",
    "three_gp": "video/3gpp",
}
_FORMATS: Final = {kind: name for name, kind in _TYPES.items()}
_DOCUMENT: Final = same_names("name", "context", "citations")
_NAME: Final = "document"
_OWNER: Final = "?bucketOwner="

Media = ImagePart | DocumentPart | VideoPart | AudioPart


def write(part: Media) -> Json:
    """Return the block of a medium.

    Raises:
        HearthNetError: `bad_request` for a source that this vendor does not read.
    """
    kind = str(part.__struct_config__.tag)
    form = None if part.media_type is None else _format(part.media_type)
    if isinstance(part, DocumentPart):
        more = {**write_fields(part, _DOCUMENT, WRITTEN), "name": part.name or _NAME}
        return {kind: {**without_nones(format=form), **more, "source": _write_source(part)}}
    return {kind: {"format": form, "source": _write_source(part)}}


def _write_source(part: Media) -> Json:
    if isinstance(part, DocumentPart) and part.text is not None:
        return {"text": part.text}
    if isinstance(part, DocumentPart) and part.texts is not None:
        return {"content": _write_texts(part.texts)}
    if part.data is not None:
        return {"bytes": part.data}
    if part.url is None or not part.url.startswith("s3://"):
        refuse("/input/messages", "Bedrock takes media as bytes or from s3:// alone")
    uri, _, owner = part.url.partition(_OWNER)
    return {"s3Location": {"uri": uri, **without_nones(bucketOwner=owner or None)}}


def read(block: Json, where: str) -> Media | None:
    """Return the medium of a block, or None if it has none."""
    for kind in (ImagePart, VideoPart, AudioPart, DocumentPart):
        name = str(kind.__struct_config__.tag)
        if name in block:
            native = fields(block[name], f"{where}.{name}")
            found = _read_source(fields(native.get("source"), f"{where}.{name}.source"))
            form = native.get("format")
            if form is not None:
                found["media_type"] = _TYPES.get(form, f"{_family(kind)}/{form}")
            if kind is DocumentPart:
                found |= read_fields(native, _DOCUMENT, READ, f"{where}.{name}.")
            made: Media = kind(**found)
            return made
    return None


def _read_source(source: Json) -> Json:
    if "s3Location" in source:
        place = fields(source["s3Location"], "s3Location")
        owner = place.get("bucketOwner")
        return {"url": text(place.get("uri"), "s3Location.uri") + (f"{_OWNER}{owner}" if owner else "")}
    if "content" in source:
        return {"texts": _read_texts(source["content"], "content")}
    return without_nones(data=source.get("bytes"), text=source.get("text"))


def _write_texts(texts: list[TextPart]) -> list[Json]:
    return [{"text": one.text} for one in texts]


def _read_texts(native: Any, where: str) -> list[TextPart]:
    return [TextPart(text(one.get("text"), f"{path}.text")) for one, path in entries(native, where)]


WRITTEN: Final[dict[str, Callable[[Any], Json | list[Json]]]] = {
    "citations": lambda enabled: {"enabled": enabled},
    "texts": _write_texts,
}
"""Writers of fields that natively have another form, and below their readers."""
READ: Final[dict[str, Callable[[Any, str], Any]]] = {
    "citations": lambda native, where: fields(native, where).get("enabled"),
    "texts": _read_texts,
}


def _format(media_type: str) -> str:
    """Return the vendor's name of a media type: its own word, or the part after the slash."""
    bare = media_type.partition(";")[0].strip().lower()
    return _FORMATS.get(bare, bare.rpartition("/")[2])


def _family(kind: type[Media]) -> str:
    return "application" if kind is DocumentPart else str(kind.__struct_config__.tag)
