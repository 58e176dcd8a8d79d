"""What JetStream holds: made by the supervisor alone, and refused when weaker than promised.

Settings of the market's stream from wire.md, "Effects happen once": a subject takes one message, for good.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hearthnet.bus.store import BLOBS
from hearthnet.errors import HearthNetError

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig

_NO_RESOURCES: Final = frozenset({10023, 10028, 10047})


def market_stream() -> StreamConfig:
    """The stream of the market's posts."""
    from nats.js import api

    return api.StreamConfig(
        name="MARKET",
        subjects=["mk.post.*.*"],
        storage=api.StorageType.FILE,
        retention=api.RetentionPolicy.LIMITS,
        discard=api.DiscardPolicy.NEW,
        discard_new_per_subject=True,
        max_msgs_per_subject=1,
        max_msgs=-1,
        max_bytes=-1,
        max_age=0,
        allow_direct=True,
        deny_delete=True,
        deny_purge=True,
    )


def blob_stream() -> StreamConfig:
    """The stream under the object store `blobs`, as NATS's own clients lay it out.

    It cannot deny purging: an object's entry replaces the one before by a roll-up, and the server takes
    that right away with the other. What is in it is addressed by its hash.
    """
    from nats.js import api

    return api.StreamConfig(
        name=f"OBJ_{BLOBS}",
        subjects=[f"$O.{BLOBS}.C.>", f"$O.{BLOBS}.M.>"],
        storage=api.StorageType.FILE,
        discard=api.DiscardPolicy.NEW,
        max_msgs=-1,
        max_bytes=-1,
        max_age=0,
        allow_rollup_hdrs=True,
        allow_direct=True,
    )


async def ensure(js: JetStreamContext, folder: Path) -> None:
    """Makes the streams that are missing and checks the others.

    Raises `bad_request` for a stream with other settings than promised, with what to do, and
    `capacity_exceeded` where the disk has no room.
    """
    from nats.js import errors

    for wanted in (market_stream(), blob_stream()):
        try:
            await _ensure(js, wanted, folder)
        except errors.APIError as error:
            raise _refused(wanted, error) from error


async def _ensure(js: JetStreamContext, wanted: StreamConfig, folder: Path) -> None:
    from nats.js import errors

    try:
        found = (await js.stream_info(str(wanted.name))).config
    except errors.NotFoundError:
        found = (await js.add_stream(wanted)).config
    different = differences(wanted, found)
    if different:
        raise HearthNetError(
            "bad_request",
            f"the stream {wanted.name} in {folder} was made with other settings than HearthNet promises "
            f"({', '.join(different)}); keep a copy, move that folder away and start again",
        )


def differences(wanted: StreamConfig, found: StreamConfig) -> list[str]:
    """Which demanded settings a stream does not have, as `deny_purge is False`."""
    demanded: dict[str, Any] = {key: value for key, value in vars(wanted).items() if value is not None}
    demanded.pop("duplicate_window")  # the server's own default; nothing here relies on it
    return [
        f"{key} is {getattr(found, key)}" for key, value in demanded.items() if getattr(found, key) != value
    ]


def _refused(wanted: StreamConfig, error: Any) -> HearthNetError:
    if error.err_code in _NO_RESOURCES:
        return HearthNetError(
            "capacity_exceeded", "the disk has no room for JetStream; make room and start again"
        )
    return HearthNetError("internal_error", f"cannot make the stream {wanted.name}: {error.description}")
