"""Preparation of a request's media: where they come from, images within limits, a media type for all else.

Images are fitted by `images.py` in a process of its own, one at a time: a small file may decode to gigabytes.
Other media are known by their first bytes, and are not decoded here.

See: docs/vendors.md#images.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import re
import time
from collections import deque
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.service import WorkerPool
from hearthnet_llm.images import MOST_BYTES, FitJob, FittedImage, ImageLimits
from hearthnet_llm.interface.caller import Caller, caller_of
from hearthnet_llm.interface.content_parts import AudioPart, DocumentPart, ImagePart, Part, VideoPart
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.interface.validation import refusal

_MIB: Final = 1 << 20
SECONDS: Final = 20.0
"""Limit for one image, of elapsed time as well as of processor time."""
BUDGET_SECONDS: Final = 20.0
"""Time of the process that a caller may use in advance, and in each minute; this node is not held to it."""
_PAID: Final = BUDGET_SECONDS / 60
"""Part of each second by which what a caller has used decreases."""
MEMORY_BYTES: Final = 640 * _MIB
"""Address space of the process: 12 megapixels take about 300 MiB above the 60 MiB of an idle one."""
_BEGINNINGS: Final = (
    (re.compile(rb"%PDF-"), "application/pdf"),
    (re.compile(rb"RIFF....WAVE", re.DOTALL), "audio/wav"),
    (re.compile(rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]"), "audio/mp3"),
    (re.compile(rb"\xff[\xf0\xf1\xf8\xf9]"), "audio/aac"),
    (re.compile(rb"FORM....AIF[CF]", re.DOTALL), "audio/aiff"),
    (re.compile(rb"#!AMR"), "audio/amr"),
    (re.compile(rb"fLaC"), "audio/flac"),
    (re.compile(rb"OggS"), "audio/ogg"),
    (re.compile(rb"....ftypM4A", re.DOTALL), "audio/mp4"),
    (re.compile(rb"....ftypqt", re.DOTALL), "video/quicktime"),
    (re.compile(rb"....ftyp3g", re.DOTALL), "video/3gpp"),
    (re.compile(rb"....ftyp", re.DOTALL), "video/mp4"),
    (re.compile(rb"\x1a\x45\xdf\xa3"), "video/webm"),
)
_LOOKED_AT: Final = 64
"""Characters of base64, a multiple of 4."""


class ImageFitter:
    """The process that decodes images, for one service; it works on one image at a time."""

    def __init__(self) -> None:
        self._workers = WorkerPool(
            "hearthnet_llm.images:fit_job", memory_bytes=MEMORY_BYTES, seconds=SECONDS, places=1
        )
        self._turns = _Turns()
        self._used: dict[str, tuple[float, float]] = {}
        """Seconds that each account has used, and when that was so."""
        self._work: asyncio.Task[bytes] | None = None

    async def fit(self, part: ImagePart, limits: ImageLimits, caller: Caller, path: str) -> FittedImage:
        """Return the image of `part` within `limits`; it is in memory only in its turn.

        Raises:
            HearthNetError: `not_found` if the caller may not read its blob; `bad_request` if it cannot be
                read, or takes too much time or memory; `rate_limited` if the caller's images have taken too
                much time; `partition` if the service is stopping.
        """
        await self._turns.take(caller.account, first=caller.is_node)
        # A thread cannot be cancelled: the turn ends with its work, also if the caller has gone.
        self._work = asyncio.create_task(self._in_turn(part, limits, caller, path))
        result = await asyncio.shield(self._work)
        return msgspec.msgpack.decode(result, type=FittedImage)

    async def _in_turn(self, part: ImagePart, limits: ImageLimits, caller: Caller, path: str) -> bytes:
        begun = time.monotonic()
        try:
            if not caller.is_node:
                self._check_budget(caller.account, begun)
            data = await _read(part, caller, path)
            job = msgspec.msgpack.encode(FitJob(data, limits, path))
            del data
            return await asyncio.to_thread(self._run, job, path)
        finally:
            now = time.monotonic()
            self._used[caller.account] = (self._used_by(caller.account, now) + now - begun, now)
            self._turns.give()

    def _used_by(self, account: str, now: float) -> float:
        used, since = self._used.get(account, (0.0, now))
        return max(0.0, used - (now - since) * _PAID)

    def _check_budget(self, account: str, now: float) -> None:
        self._used = {one: entry for one, entry in self._used.items() if self._used_by(one, now)}
        over = self._used_by(account, now) - BUDGET_SECONDS
        if over >= 0:
            raise HearthNetError(
                "rate_limited",
                f"decoding your images took more than {BUDGET_SECONDS:g} s in a minute; send smaller ones",
                retry_after_ms=math.ceil((over / _PAID + 1) * 1000),
            )

    def _run(self, job: bytes, path: str) -> bytes:
        def failed(failure: str, _exception: str) -> HearthNetError:
            return refusal(path, f"decoding the image {_FAILURES[failure]}")

        return self._workers.run(job, failed)

    def close(self) -> None:
        """Kill the process; the image in progress fails, and so do those that wait for their turn."""
        self._workers.close()


class _Turns:
    """One turn at a time: first for this node, then for each account in rotation."""

    def __init__(self) -> None:
        self._taken = False
        self._first: deque[asyncio.Future[None]] = deque()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By account, the next one first."""

    async def take(self, account: str, *, first: bool) -> None:
        """Wait for a turn; `give` ends it."""
        if not self._taken:
            self._taken = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._first if first else self._waiting.setdefault(account, deque())).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give()
            raise

    def give(self) -> None:
        """End a turn; the next one begins."""
        while self._first or self._waiting:
            if self._first:
                turn = self._first.popleft()
            else:
                account = next(iter(self._waiting))
                turns = self._waiting.pop(account)
                turn = turns.popleft()
                if turns:
                    self._waiting[account] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False


_FAILURES: Final = {
    "time": f"took more than {int(SECONDS)} seconds; send a smaller one",
    "memory": "took more memory than there is for one image; send a smaller one",
    "crash": "failed; it is damaged, or made to harm: save it again, as PNG or JPEG",
}


async def _read(part: ImagePart, caller: Caller, path: str) -> bytes:
    """Return the bytes of the image, which the caller may read."""
    if part.image_cid is None:
        return _decoded(part.data or "", path)
    blob = await caller.open_blob(part.image_cid)
    if blob.size > MOST_BYTES:
        raise refusal(path, f"the image has {blob.size >> 20} MiB; at most {MOST_BYTES >> 20} are read")
    return await blob.read(0, blob.size)


async def prepared(request: ChatRequest, limits: ImageLimits, fitter: ImageFitter | None) -> ChatRequest:
    """Return the request with images as bytes within `limits` and media types for all else.

    A medium given by URL or by a vendor's id stays as it is (`backends/sources.py` decides about it).

    Raises:
        HearthNetError: `bad_request` for a medium of unknown type, too many images, and an unreadable image;
            `not_found` for a blob that the caller may not read.
    """
    caller = caller_of(request)
    count = sum(len(message.images) for message in request.messages)
    if count > limits.most_images:
        raise refusal(
            "/input/messages", f"{count} images; this model takes at most {limits.most_images} in one request"
        )
    share = min(limits.most_bytes, limits.all_bytes // max(count, 1))
    within = msgspec.structs.replace(limits, most_bytes=share)

    async def fit(part: Part, path: str) -> Part:
        if isinstance(part, ImagePart) and part.url is None and part.file_id is None:
            if fitter is None:
                raise refusal(path, "no image is decoded here")
            made = await fitter.fit(part, within, caller, path)
            text = base64.b64encode(made.data).decode()
            return msgspec.structs.replace(part, image_cid=None, data=text, media_type=made.media_type)
        return _typed(part, path)

    messages = []
    for place, message in enumerate(request.messages):
        if isinstance(message.content, list):
            path = f"/input/messages/{place}/content"
            parts = [await fit(part, f"{path}/{number}") for number, part in enumerate(message.content)]
            message = msgspec.structs.replace(message, content=parts)
        messages.append(message)
    return msgspec.structs.replace(request, messages=messages)


def _typed(part: Part, path: str) -> Part:
    """Return the part with its media type."""
    if not isinstance(part, AudioPart | VideoPart | DocumentPart) or part.data is None:
        return part
    _check_base64(part.data, path)
    if isinstance(part, AudioPart) and _kind_of(part.data) is None:  # //etc/passwd is base64, too
        raise refusal(path, "data must be a recording in base64, such as WAV, MP3, AAC, FLAC or OGG")
    if part.media_type is not None:
        return part
    family = str(part.__struct_config__.tag)
    kind = media_type_of(part.data, family)
    if kind is None:
        raise refusal(f"{path}/media_type", f"say what the {family} is, such as application/pdf or audio/mp3")
    return msgspec.structs.replace(part, media_type=kind)


_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def _check_base64(text: str, path: str) -> None:
    """Refuse data that a server could take for something else than bytes, such as a path or a URL."""
    if len(text) % 4 or not _BASE64.fullmatch(text):
        raise refusal(path, "data must be base64")


def _decoded(text: str, path: str) -> bytes:
    if len(text) > MOST_BYTES * 4 // 3 + 4:
        raise refusal(path, f"the image is larger than {MOST_BYTES >> 20} MiB")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refusal(path, "data must be base64") from error


LIMITS: Final[dict[str, ImageLimits]] = {
    "anthropic": ImageLimits(most_bytes=5 * _MIB * 3 // 4, longest_side=1568),
    "bedrock-anthropic": ImageLimits(most_bytes=5 * _MIB * 3 // 4, longest_side=1568),
    "bedrock-converse": ImageLimits(most_bytes=15 * _MIB // 4, longest_side=1568),
    "gemini": ImageLimits(
        ("image/jpeg", "image/png", "image/webp"), most_bytes=7 * _MIB, longest_side=3072, all_bytes=14 * _MIB
    ),
    "ollama": ImageLimits(("image/jpeg", "image/png"), longest_side=1536, most_images=8),
    "openai": ImageLimits(most_bytes=10 * _MIB, longest_side=2048),
}
"""By the name of the protocol. The longer sides are those above which the vendor scales down anyway."""


def media_type_of(data: str, family: str) -> str | None:
    """Return the media type of base64 `data`, or None if it is unknown or of another family.

    `family` is audio, video or document.
    """
    found = _kind_of(data)
    return found if found is None or (found.partition("/")[0] in (family, "application")) else None


def _kind_of(data: str) -> str | None:
    try:
        head = base64.b64decode(data[:_LOOKED_AT])
    except (binascii.Error, ValueError):
        return None
    return next((kind for beginning, kind in _BEGINNINGS if beginning.match(head)), None)
