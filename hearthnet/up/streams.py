"""What JetStream holds: made by the supervisor alone, and refused when weaker than promised.

    MARKET      mk.post.<author>.<client id>      one event a subject; what its author deletes is erased
    COMMUNITY   cm.event.<author>.<sequence>,     one event a subject, for good
                cm.revoked.<issuer>.<token id>
    COUNTERS    ct.<token id>.<what>              counters (`Nats-Incr`), gone 25 h after the last increment
    KV_claims   $KV.claims.<key>                  one record a key, changed only by who read it
    AUDIT       au.entry                          the audit log, in order
    RUNS        rn.run.<run>,                     a run of the tool loop as it was saved last, and what was
                rn.said.<run>.<confirmation id>   decided about its calls; gone 25 h after it was written
    OBJ_blobs   $O.blobs.>                        documents by their hash

See: docs/protocol/subjects.md#stored-subjects.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hearthnet.bus.store import BLOBS, CLAIMS
from hearthnet.errors import HearthNetError

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig

_NO_RESOURCES: Final = frozenset({10023, 10028, 10047})


_STRICTER: Final = {"MARKET": "deny_delete is True"}
"""What a stream of an earlier version may have, and the server lets nobody change: what is deleted there is
forgotten, and not erased.
"""

COUNTED_SECONDS: Final = 25 * 60 * 60
"""How long a counter is kept: longer than the day that a token lives at most, and its hour of grace."""


def market_stream() -> StreamConfig:
    """The stream of the market's posts. Alone of all it lets single messages be erased: a member may delete
    what it wrote (docs/decisions/0124).
    """
    kept = _events("MARKET", "mk.post.*.*")
    kept.deny_delete = False
    return kept


def community_stream() -> StreamConfig:
    """The stream of the community's events and of its tokens' revocations; these end with their tokens."""
    kept = _events("COMMUNITY", "cm.event.*.*", "cm.revoked.*.*")
    kept.allow_msg_ttl = True
    return kept


def counter_stream() -> StreamConfig:
    """The stream of what tokens were used for; a message adds to the number under its subject."""
    from nats.js import api

    kept = _kept("COUNTERS", "ct.>")
    kept.discard = api.DiscardPolicy.OLD  # the new number takes the old one's place
    kept.max_msgs_per_subject = 1
    kept.max_age = COUNTED_SECONDS
    kept.allow_msg_counter = True
    return kept


def claim_stream() -> StreamConfig:
    """The stream under the key-value bucket of claims, as NATS's own clients lay it out."""
    kept = _kept(f"KV_{CLAIMS}", f"$KV.{CLAIMS}.>")
    kept.max_msgs_per_subject = 1
    return kept


def audit_stream() -> StreamConfig:
    """The stream of the audit log: one subject, so that its sequence is the chain's."""
    return _kept("AUDIT", "au.entry")


RUN_SECONDS: Final = 25 * 60 * 60
"""How long a saved run is kept: the day for which it can be resumed, and an hour in which that is told."""


def run_stream() -> StreamConfig:
    """The stream of saved runs; a run's new state takes the old one's place, a decision is written once."""
    from nats.js import api

    kept = _kept("RUNS", "rn.run.*", "rn.said.*.*")
    kept.discard = api.DiscardPolicy.OLD
    kept.max_msgs_per_subject = 1
    kept.max_age = RUN_SECONDS
    return kept


def _events(name: str, *subjects: str) -> StreamConfig:
    """A stream in which a subject takes one message, for good."""
    kept = _kept(name, *subjects)
    kept.discard_new_per_subject = True
    kept.max_msgs_per_subject = 1
    return kept


def _kept(name: str, *subjects: str) -> StreamConfig:
    """A stream from which nothing is ever taken away."""
    from nats.js import api

    return api.StreamConfig(
        name=name,
        subjects=list(subjects),
        storage=api.StorageType.FILE,
        retention=api.RetentionPolicy.LIMITS,
        discard=api.DiscardPolicy.NEW,
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

    for wanted in _everything():
        try:
            await _ensure(js, wanted, folder)
        except errors.APIError as error:
            raise _refused(wanted, error) from error


def _everything() -> tuple[StreamConfig, ...]:
    return (
        market_stream(),
        community_stream(),
        counter_stream(),
        claim_stream(),
        audit_stream(),
        run_stream(),
        blob_stream(),
    )


async def _ensure(js: JetStreamContext, wanted: StreamConfig, folder: Path) -> None:
    from nats.js import errors

    try:
        found = (await js.stream_info(str(wanted.name))).config
    except errors.NotFoundError:
        found = (await js.add_stream(wanted)).config
    different = [one for one in differences(wanted, found) if one != _STRICTER.get(str(wanted.name))]
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
