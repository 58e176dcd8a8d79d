"""Media whose type nobody has said: by how their bytes begin."""

from __future__ import annotations

import base64

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import AudioPart, DocumentPart, Part, VideoPart
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.media import LIMITS, media_type_of, prepared, unknown
from tests.services.llm.shapes import MP3, MP4, PDF, TEXT, WAV

pytestmark = pytest.mark.req("LLM-148")


@pytest.mark.parametrize(
    ("data", "family", "kind"),
    [
        (PDF, "document", "application/pdf"),
        (WAV, "audio", "audio/wav"),
        (MP3, "audio", "audio/mp3"),
        (MP4, "video", "video/mp4"),
        (base64.b64encode(b"\x1a\x45\xdf\xa3" + bytes(80)).decode(), "video", "video/webm"),
        (MP4, "audio", None),
        (TEXT, "document", None),
        ("no base64!", "audio", None),
        ("abcde", "audio", None),
        ("", "audio", None),
    ],
)
def test_the_first_bytes_tell_the_type(data: str, family: str, kind: str | None) -> None:
    assert media_type_of(data, family) == kind


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (DocumentPart(PDF), "application/pdf"),
        (AudioPart(WAV), "audio/wav"),
        (VideoPart(MP4), "video/mp4"),
    ],
)
async def test_a_type_that_is_unsaid_is_filled_in(part: Part, kind: str) -> None:
    request = ChatRequest(messages=[Message("user", [part])])
    made = await prepared(request, LIMITS["gemini"], unknown)
    content = made.messages[0].content
    assert isinstance(content, list)
    assert getattr(content[0], "media_type", None) == kind


@pytest.mark.asyncio
async def test_an_unknown_type_is_asked_for_with_its_place() -> None:
    request = ChatRequest(messages=[Message("user", "?"), Message("user", [DocumentPart(TEXT)])])
    with pytest.raises(HearthNetError, match="say what the document is") as refused:
        await prepared(request, LIMITS["gemini"], unknown)
    assert refused.value.details["path"] == "/input/messages/1/content/0/media_type"
