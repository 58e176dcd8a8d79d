"""Sources of an answer, and of earlier answers in later requests.

An answer has them as annotations of its message, or as a list repeated in each chunk; a request has them as
`annotations` of a message. Canonically they are citations of the message's only text; a message that has
annotations and no text loses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hearthnet_llm.interface.content_parts import Citation, TextPart
from hearthnet_llm.interface.frames import CitationEvent
from hearthnet_llm.interface.request import Message
from hearthnet_llm.vendors.field_tables import read_fields, write_fields
from hearthnet_llm.vendors.json_access import entries, fields, text, without_nones
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.wire import Json

_KIND: Final = "url_citation"
_FIELDS: Final = {
    "url": "url",
    "title": "title",
    "start": "start_index",
    "end": "end_index",
    "quoted": "content",
}


class Citations:
    """The sources of one answer."""

    def __init__(self) -> None:
        self._annotated: dict[tuple[str, int | None], Citation] = {}
        self._listed: list[Any] = []

    def feed(self, message: Mapping[str, Any]) -> None:
        """Add the annotations of a delta or a message."""
        for one in message.get("annotations") or ():
            cited = one.get("url_citation") if isinstance(one, Mapping) else None
            if isinstance(cited, Mapping) and isinstance(cited.get("url"), str):
                start, end = _number(cited, "start_index"), _number(cited, "end_index")
                quoted = _text(cited, "content")
                found = Citation(
                    "web", quoted, title=_text(cited, "title"), url=cited["url"], start=start, end=end
                )
                self._annotated.setdefault((cited["url"], start), found)

    def beside(self, chunk: Mapping[str, Any]) -> None:
        """Record the list of sources: objects if there are any, else URLs. The last list counts."""
        listed = chunk.get("search_results") or chunk.get("citations")
        if isinstance(listed, list):
            self._listed = listed

    def finish(self) -> Iterator[CitationEvent]:
        """Yield each annotation once, then the list, whose items the text cites by number."""
        for citation in self._annotated.values():
            yield CitationEvent(citation)
        for index, one in enumerate(self._listed):
            source = {"url": one} if isinstance(one, str) else one
            if isinstance(source, Mapping) and isinstance(source.get("url"), str):
                yield CitationEvent(
                    Citation("web", title=_text(source, "title"), url=source["url"], index=index)
                )


def _text(source: Mapping[str, Any], name: str) -> str | None:
    value = source.get(name)
    return value if isinstance(value, str) else None


def _number(source: Mapping[str, Any], name: str) -> int | None:
    value = source.get(name)
    return value if isinstance(value, int) and value >= 0 else None


def write(message: Message, body: Json, choices: Choices) -> None:
    """Put the sources of an assistant's `message` into its native `body`."""
    form = choices["annotations"]
    if message.role != "assistant" or form == "left_out":
        return
    cited = [citation for part in _texts(message) for citation in part.citations or ()]
    if cited and isinstance(message.content, list) and len(message.content) == 1:
        body["content"] = _texts(message)[0].text
    if cited or form == "sent":
        body["annotations"] = [{"type": _KIND, _KIND: write_fields(citation, _FIELDS)} for citation in cited]


def _texts(message: Message) -> list[TextPart]:
    if not isinstance(message.content, list):
        return []
    return [part for part in message.content if isinstance(part, TextPart)]


def read(message: Json, made: Json, path: str, spelling: dict[str, str]) -> None:
    """Put the sources of a native `message` into the canonical one in `made`."""
    if message.get("annotations") is None:
        return
    spelling["annotations"] = "sent"
    cited = [_read(one, place) for one, place in entries(message["annotations"], f"{path}.annotations")]
    found = [one for one in cited if one is not None]
    if found and isinstance(made.get("content"), str):
        made["content"] = [{"type": "text", "text": made["content"], "citations": found}]


def _read(one: Json, path: str) -> Json | None:
    """Return a citation, or None for other annotations, such as those of a file."""
    if one.get("type") != _KIND:
        return None
    native = fields(one.get(_KIND), f"{path}.{_KIND}")
    text(native.get("url"), f"{path}.{_KIND}.url")
    return {"kind": "web", **without_nones(**read_fields(native, _FIELDS))}
