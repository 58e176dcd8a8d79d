"""Media on their way to a model: types found; images kept, turned, scaled, transcoded, bounded, refused."""

from __future__ import annotations

import asyncio
import base64
import random
import struct
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from zlib import crc32

import msgspec
import pytest
from PIL import Image

from hearthnet.core.errors import HearthNetError
from hearthnet.service import WorkerPool
from hearthnet_llm.images import MOST_BYTES, FittedImage, ImageLimits, _webp_canvas, fit_image
from hearthnet_llm.interface.caller import Caller, CallerRequest
from hearthnet_llm.interface.content_parts import (
    AudioPart,
    CacheHint,
    DocumentPart,
    ImagePart,
    Part,
    TextPart,
    VideoPart,
)
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.media import (
    BUDGET_SECONDS,
    LIMITS,
    MEMORY_BYTES,
    ImageFitter,
    _Turns,
    media_type_of,
    prepared,
)
from hearthnet_llm.vendors import WIRES
from tests.services.llm.shapes import MP3, MP4, PDF, TEXT, WAV, picture, written

pytestmark = pytest.mark.req("LLM-34")
CID = "blake3:" + "0" * 64
FIT = "hearthnet_llm.images:fit_job"


def noise(width: int, height: int, mode: str = "RGB") -> bytes:
    """A picture that no form makes small."""
    chooser = random.Random(4)
    size = width * height * len(mode)
    return written(Image.frombytes(mode, (width, height), chooser.randbytes(size)), "PNG")


def opened(data: bytes) -> Image.Image:
    """The image of a file."""
    return Image.open(BytesIO(data))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
def test_what_fits_is_left_as_it_is(form: str) -> None:
    data = picture(form=form)
    assert fit_image(data, ImageLimits(), "/x") == (data, f"image/{form.lower()}")


def test_what_is_too_large_is_scaled_and_keeps_its_shape() -> None:
    data, kind = fit_image(picture(1200, 600), ImageLimits(longest_side=600), "/x")
    assert (opened(data).size, kind) == ((600, 300), "image/jpeg")


@pytest.mark.parametrize("form", ["BMP", "TIFF", "WEBP", "GIF"])
def test_a_form_that_the_target_does_not_take_becomes_another(form: str) -> None:
    limits = ImageLimits(types=("image/jpeg", "image/png"))
    data, kind = fit_image(picture(form=form), limits, "/x")
    assert kind == "image/jpeg"
    made = opened(data)
    red, _, blue = made.convert("RGB").getpixel((5, 10))  # type: ignore[misc]
    assert (made.format, red > blue) == ("JPEG", True)


def test_what_is_transparent_stays_so_where_the_target_takes_it() -> None:
    clear = written(Image.new("RGBA", (900, 900), (0, 0, 0, 0)), "PNG")
    data, kind = fit_image(clear, ImageLimits(longest_side=300), "/x")
    assert (kind, opened(data).getpixel((5, 5))) == ("image/png", (0, 0, 0, 0))
    data, kind = fit_image(clear, ImageLimits(types=("image/jpeg",)), "/x")
    assert (kind, opened(data).getpixel((5, 5))) == ("image/jpeg", (255, 255, 255))


def test_a_picture_taken_with_the_camera_on_its_side_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned to the right
    data, _ = fit_image(picture(form="JPEG", exif=exif), ImageLimits(), "/x")
    made = opened(data)
    top = made.convert("RGB").getpixel((10, 4))
    assert (made.size, top[0] > top[2]) == ((20, 40), True)  # type: ignore[index]


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("most", [60_000, 9_000])
def test_bytes_are_bounded_whatever_is_in_the_picture(mode: str, most: int) -> None:
    data, _ = fit_image(noise(400, 300, mode), ImageLimits(most_bytes=most), "/x")
    assert len(data) <= most
    assert max(opened(data).size) >= 64


def test_a_picture_that_cannot_be_made_small_enough_is_refused() -> None:
    with pytest.raises(HearthNetError, match="as small as 100 bytes"):
        fit_image(noise(80, 80), ImageLimits(most_bytes=100), "/x")


def header(width: int, height: int) -> bytes:
    """The beginning of a PNG that says how large it is."""
    chunks = b"IHDR" + struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT"
    framed = (struct.pack("!I", len(one) - 4) + one + struct.pack("!I", crc32(one)) for one in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<html></html>", "no image"),
        (b"", "no image"),
        (header(60_000, 60_000), "too many pixels"),
        (header(10_000, 8_000), "10000 x 8000"),
        (picture(900, 900)[:600], "damaged"),
        (bytes((32 << 20) + 1), "MiB"),
    ],
    ids=["html", "nothing", "bomb", "large", "cut", "heavy"],
)
def test_what_is_no_image_is_refused_with_its_place(data: bytes, said: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        fit_image(data, ImageLimits(longest_side=100), "/input/messages/1/content/0")
    assert (caught.value.code, caught.value.details["path"]) == ("bad_request", "/input/messages/1/content/0")
    assert said in caught.value.message


def test_each_wire_has_its_limits() -> None:
    assert LIMITS.keys() == WIRES.keys()


def asked(*parts: Part, **known: bytes) -> ChatRequest:
    """A question with media, of a caller that may read the blobs in `known`."""

    async def open_blob(cid: str) -> Any:
        if cid not in known:
            raise HearthNetError("not_found", f"no blob {cid}")
        return StoredBytes(known[cid])

    return CallerRequest(
        messages=[Message("system", "x"), Message("user", list(parts))], caller=Caller(open_blob)
    )


class StoredBytes:
    """As much of a blob as is read here."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    async def read(self, offset: int, length: int) -> bytes:
        """A part."""
        return self.data[offset : offset + length]


@pytest.fixture
def fitter() -> Iterator[ImageFitter]:
    """The process that decodes images."""
    made = ImageFitter()
    yield made
    made.close()


@pytest.mark.asyncio
async def test_images_are_fetched_by_hash_and_put_in(fitter: ImageFitter) -> None:
    data = picture()
    hint = CacheHint()
    request = asked(
        TextPart("?"),
        ImagePart(image_cid=CID, cache=hint),
        ImagePart(base64.b64encode(data).decode()),
        **{CID: data},
    )
    made = await prepared(request, ImageLimits(), fitter)
    text = base64.b64encode(data).decode()
    assert made.messages[1].content == [
        TextPart("?"),
        ImagePart(text, media_type="image/png", cache=hint),
        ImagePart(text, media_type="image/png"),
    ]
    assert made.messages[0] == request.messages[0]


@pytest.mark.asyncio
async def test_what_is_said_of_an_image_stays_with_it(fitter: ImageFitter) -> None:
    part = ImagePart(image_cid=CID, detail="low", name="p.png", signature="AA==")
    made = await prepared(asked(part, **{CID: picture()}), ImageLimits(), fitter)
    text = base64.b64encode(picture()).decode()
    assert made.messages[1].content == [
        ImagePart(text, media_type="image/png", detail="low", name="p.png", signature="AA==")
    ]


@pytest.mark.asyncio
async def test_all_images_of_a_request_share_its_bytes(fitter: ImageFitter) -> None:
    request = asked(*[ImagePart(base64.b64encode(noise(200, 200)).decode())] * 4)
    made = await prepared(request, ImageLimits(all_bytes=40_000), fitter)
    parts = made.messages[1].content
    assert isinstance(parts, list)
    sizes = [len(base64.b64decode(part.data or "")) for part in parts if isinstance(part, ImagePart)]
    assert len(sizes) == 4
    assert max(sizes) <= 10_000


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("parts", "code", "said"),
    [
        ([ImagePart("AA==")] * 21, "bad_request", "at most 20"),
        ([ImagePart("not base64")], "bad_request", "base64"),
        ([ImagePart("no*base64")], "bad_request", "base64"),
        ([ImagePart(image_cid=CID)], "not_found", CID),
        ([ImagePart("A" * 50_000_000)], "bad_request", "larger"),
    ],
    ids=["many", "text", "one foreign character", "lost", "heavy"],
)
async def test_images_that_cannot_be_sent_are_refused(
    parts: list[ImagePart], code: str, said: str, fitter: ImageFitter
) -> None:
    with pytest.raises(HearthNetError) as caught:
        await prepared(asked(*parts), ImageLimits(), fitter)
    assert caught.value.code == code
    assert said in caught.value.message


@pytest.mark.req("ATTACK-39")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("function", "memory_bytes", "seconds", "reason"),
    [
        (FIT, 80 << 20, 60.0, "took more memory than there is for one image; send a smaller one"),
        (FIT, MEMORY_BYTES, 0.01, "took more than 20 seconds; send a smaller one"),
        ("struct:unpack", MEMORY_BYTES, 60.0, "failed; it is damaged, or made to harm"),
    ],
    ids=["memory", "time", "error"],
)
async def test_what_takes_too_much_costs_that_image(
    fitter: ImageFitter, function: str, memory_bytes: int, seconds: float, reason: str
) -> None:
    whole = fitter._workers
    fitter._workers = WorkerPool(function, memory_bytes=memory_bytes, seconds=seconds, places=1)
    large = ImagePart(base64.b64encode(picture(4000, 3000)).decode())
    with pytest.raises(HearthNetError, match=reason) as caught:
        await prepared(asked(large), ImageLimits(), fitter)
    assert caught.value.code == "bad_request"
    fitter._workers.close()
    fitter._workers = whole
    await prepared(asked(large), ImageLimits(), fitter)


@pytest.mark.req("ATTACK-39")
@pytest.mark.asyncio
async def test_no_image_is_read_before_its_turn(fitter: ImageFitter, monkeypatch: pytest.MonkeyPatch) -> None:
    open_now, most, run = 0, 0, fitter._run

    def work(job: bytes, path: str) -> bytes:
        nonlocal open_now
        try:
            return run(job, path)
        finally:
            open_now -= 1

    class Counted(StoredBytes):
        async def read(self, offset: int, length: int) -> bytes:
            nonlocal open_now, most
            open_now += 1
            most = max(most, open_now)
            await asyncio.sleep(0)
            return await super().read(offset, length)

    async def open_blob(cid: str) -> Any:
        return Counted(picture())

    shown = [Message("user", [ImagePart(image_cid=CID)])]
    request = CallerRequest(messages=shown, caller=Caller(open_blob))
    monkeypatch.setattr(fitter, "_run", work)
    await asyncio.gather(*(prepared(request, ImageLimits(), fitter) for _ in range(8)))
    assert (most, open_now) == (1, 0)


@pytest.mark.req("ATTACK-39")
@pytest.mark.asyncio
async def test_a_turn_lasts_as_long_as_its_work_also_if_the_caller_has_gone(
    fitter: ImageFitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    at_work: list[bytes] = []

    def run(job: bytes, path: str) -> bytes:
        at_work.append(job)
        loop.call_soon_threadsafe(begun.set)
        end.wait()
        return msgspec.msgpack.encode(FittedImage(b"", "image/png"))

    monkeypatch.setattr(fitter, "_run", run)
    data = ImagePart(base64.b64encode(picture()).decode())
    calls = []
    try:
        for _ in range(8):
            calls.append(asyncio.create_task(fitter.fit(data, ImageLimits(), Caller(), "/x")))
            await begun.wait()
            await asyncio.sleep(0)
            calls[-1].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert len(at_work) == 1
    finally:
        end.set()
    await fitter.fit(data, ImageLimits(), Caller(), "/x")
    assert len(at_work) == 2


@pytest.mark.req("ATTACK-39")
@pytest.mark.asyncio
async def test_turns_rotate_and_this_node_is_first() -> None:
    turns, order = _Turns(), list[str]()

    async def work(account: str, *, first: bool = False) -> None:
        await turns.take(account, first=first)
        order.append(account)

    await turns.take("mallory", first=False)
    waiting = [asyncio.create_task(work(one)) for one in ("mallory", "gone", *["mallory"] * 3, "carol")]
    waiting.append(asyncio.create_task(work("node", first=True)))
    await asyncio.sleep(0)
    waiting[1].cancel()
    while len(order) < 6:
        turns.give()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert order == ["node", "mallory", "carol", "mallory", "mallory", "mallory"]
    late = asyncio.create_task(work("late"))
    await asyncio.sleep(0)
    turns.give()
    late.cancel()  # it has its turn, but does not know it yet
    await asyncio.gather(late, return_exceptions=True)
    await turns.take("next", first=False)


@pytest.mark.req("ATTACK-39")
@pytest.mark.asyncio
async def test_the_time_for_images_is_bounded_for_each_caller(fitter: ImageFitter) -> None:
    data = ImagePart(base64.b64encode(picture()).decode())

    async def fit(caller: Caller) -> FittedImage:
        return await fitter.fit(data, ImageLimits(), caller, "/x")

    await fit(Caller(account="mallory"))
    now = time.monotonic()
    fitter._used |= dict.fromkeys(("mallory", "node"), (BUDGET_SECONDS + 1, now))
    fitter._used["carol"] = (BUDGET_SECONDS + 1, now - 60)
    with pytest.raises(HearthNetError, match="send smaller ones") as caught:
        await fit(Caller(account="mallory"))
    assert caught.value.code == "rate_limited"
    assert 3000 < (caught.value.retry_after_ms or 0) <= 4000
    await fit(Caller(account="carol"))
    await fit(Caller(account="node", is_here=True, is_node=True))


@pytest.mark.asyncio
async def test_images_that_wait_when_the_service_stops_are_told_so(fitter: ImageFitter) -> None:
    data = ImagePart(base64.b64encode(picture(4000, 3000)).decode())
    calls = [asyncio.create_task(fitter.fit(data, ImageLimits(), Caller(), "/x")) for _ in range(3)]
    await asyncio.sleep(0)
    fitter.close()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(one, "code", one) for one in results] == ["partition"] * 3


def test_a_panorama_is_decoded_at_the_size_that_it_will_have() -> None:
    data, _ = fit_image(written(Image.new("RGB", (12_000, 2500)), "JPEG"), ImageLimits(), "/x")
    assert opened(data).size == (2048, 427)


def test_a_jpeg_with_more_pictures_is_a_jpeg() -> None:
    first, more = Image.new("RGB", (5000, 4000), "red"), Image.new("RGB", (600, 400), "blue")
    large, small = BytesIO(), BytesIO()
    first.save(large, "MPO", save_all=True, append_images=[more])
    more.save(small, "MPO", save_all=True, append_images=[more])
    assert opened(small.getvalue()).format == "MPO"
    assert fit_image(small.getvalue(), ImageLimits(), "/x")[1] == "image/jpeg"
    data, kind = fit_image(large.getvalue(), ImageLimits(), "/x")
    assert (kind, opened(data).size) == ("image/jpeg", (2048, 1638))


@pytest.mark.req("ATTACK-39")
def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded() -> None:
    written_once = BytesIO()
    Image.new("L", (3000, 3000), 128).save(written_once, "JPEG", progressive=True)
    data = written_once.getvalue()
    last = data.rindex(b"\xff\xda")
    many = data[:-2] + data[last:-2] * 101 + data[-2:]
    with pytest.raises(HearthNetError, match="more than 100 scans"):
        fit_image(many, ImageLimits(), "/x")
    behind = data + b"\xff\xda" * 101  # as in a film behind the picture
    assert fit_image(behind, ImageLimits(), "/x")[1] == "image/jpeg"


@pytest.mark.asyncio
async def test_a_recording_is_known_by_its_first_bytes(fitter: ImageFitter) -> None:
    with pytest.raises(HearthNetError, match="must be a recording"):
        await prepared(asked(AudioPart("//etc/passwd", media_type="audio/wav")), ImageLimits(), fitter)


@pytest.mark.req("ATTACK-39")
@pytest.mark.asyncio
async def test_a_large_blob_is_refused_before_it_is_read(fitter: ImageFitter) -> None:
    class Large(StoredBytes):
        size = MOST_BYTES + 1

        def __init__(self) -> None:
            """No bytes: reading them fails."""

    async def open_blob(cid: str) -> Any:
        return Large()

    shown = [Message("user", [ImagePart(image_cid=CID)])]
    request = CallerRequest(messages=shown, caller=Caller(open_blob))
    with pytest.raises(HearthNetError, match="at most 32 are read"):
        await prepared(request, ImageLimits(), fitter)


@pytest.mark.req("ATTACK-39")
@pytest.mark.parametrize(
    ("form", "size", "is_read"),
    [
        ("JPEG", (4032, 3024), True),
        ("JPEG", (5712, 4284), True),
        ("JPEG", (8000, 6300), False),
        ("PNG", (4032, 3024), True),
        ("PNG", (4200, 3000), False),
        ("WEBP", (4200, 3000), False),
        ("GIF", (4200, 3000), False),
    ],
)
def test_a_photo_has_12_megapixels(form: str, size: tuple[int, int], is_read: bool) -> None:
    data = written(Image.new("L" if form == "GIF" else "RGB", size), form)
    if is_read:
        assert max(opened(fit_image(data, ImageLimits(), "/x")[0]).size) == 2048
        return
    with pytest.raises(HearthNetError, match="at most 12 million, or a JPEG of at most 50 million"):
        fit_image(data, ImageLimits(), "/x")


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_a_webp_says_its_size_before_it_is_opened(lossless: bool, mode: str) -> None:
    for frames in ([], [Image.new(mode, (300, 200), "red")]):
        data = written(
            Image.new(mode, (300, 200)), "WEBP", lossless=lossless, save_all=True, append_images=frames
        )
        assert _webp_canvas(data) == (300, 200)


@pytest.mark.asyncio
async def test_a_request_without_images_stays_the_same(fitter: ImageFitter) -> None:
    request = asked(TextPart("?"))
    assert await prepared(request, ImageLimits(), fitter) == request


@pytest.mark.req("LLM-148")
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


@pytest.mark.req("LLM-148")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (DocumentPart(PDF), "application/pdf"),
        (AudioPart(WAV), "audio/wav"),
        (VideoPart(MP4), "video/mp4"),
    ],
)
async def test_a_type_that_is_unsaid_is_filled_in(part: Part, kind: str, fitter: ImageFitter) -> None:
    request = ChatRequest(messages=[Message("user", [part])])
    made = await prepared(request, LIMITS["gemini"], fitter)
    content = made.messages[0].content
    assert isinstance(content, list)
    assert getattr(content[0], "media_type", None) == kind


@pytest.mark.req("LLM-148")
@pytest.mark.asyncio
async def test_an_unknown_type_is_asked_for_with_its_place(fitter: ImageFitter) -> None:
    request = ChatRequest(messages=[Message("user", "?"), Message("user", [DocumentPart(TEXT)])])
    with pytest.raises(HearthNetError, match="say what the document is") as refused:
        await prepared(request, LIMITS["gemini"], fitter)
    assert refused.value.details["path"] == "/input/messages/1/content/0/media_type"
