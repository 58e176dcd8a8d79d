"""The streams of JetStream: made by the supervisor alone, refused if weaker than promised.

    MARKET      mk.post.<author>.<client id>      one event a subject; what its author deletes is erased
    COMMUNITY   cm.event.<author>.<sequence>,     one event a subject, permanently
                cm.revoked.<issuer>.<token id>
    COUNTERS    ct.<token id>.<what>              counters (`Nats-Incr`), gone 25 h after the last increment
    KV_claims   $KV.claims.<key>                  one record a key, changed by compare-and-set
    AUDIT       au.entry                          the audit log, in order
    RUNS        rn.run.<run>,                     a run of the tool loop as it was saved last, and the
                rn.said.<run>.<confirmation id>   decisions about its calls; gone 25 h after it was written
    OBJ_blobs   $O.blobs.>                        documents by their hash

See: docs/protocol/subjects.md#stored-subjects.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hearthnet.bus.store import BLOBS, CLAIMS
from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig

_NO_RESOURCES: Final = frozenset({10023, 10028, 10047})

COUNTED_SECONDS: Final = 25 * 60 * 60
"""The lifetime of a counter: longer than the longest life of a token, a day, and its hour of grace."""


def market_stream() -> StreamConfig:
    """Return the stream of the market's posts.

    It alone allows the erasure of single messages: a member may delete its own posts (docs/decisions/0124).
    """
    kept = _events("MARKET", "mk.post.*.*")
    kept.deny_delete = False
    return kept


def community_stream() -> StreamConfig:
    """Return the stream of the community's events and of token revocations.

    The latter expire with their tokens.
    """
    kept = _events("COMMUNITY", "cm.event.*.*", "cm.revoked.*.*")
    kept.allow_msg_ttl = True
    return kept


def counter_stream() -> StreamConfig:
    """Return the stream of the uses of tokens; a message adds to the number of its subject."""
    from nats.js import api

    kept = _permanent("COUNTERS", "ct.>")
    kept.discard = api.DiscardPolicy.OLD  # the new number replaces the old one
    kept.max_msgs_per_subject = 1
    kept.max_age = COUNTED_SECONDS
    kept.allow_msg_counter = True
    return kept


def claim_stream() -> StreamConfig:
    """Return the stream under the key-value bucket of claims, in the layout of NATS clients."""
    kept = _permanent(f"KV_{CLAIMS}", f"$KV.{CLAIMS}.>")
    kept.max_msgs_per_subject = 1
    return kept


def audit_stream() -> StreamConfig:
    """Return the stream of the audit log: one subject, so that its sequence is the chain's."""
    return _permanent("AUDIT", "au.entry")


RUN_SECONDS: Final = 25 * 60 * 60
"""The lifetime of a saved run: a day in which it can be resumed, and an hour to report its expiry."""


def run_stream() -> StreamConfig:
    """Return the stream of saved runs.

    A run's new state replaces the old one; a decision is written once.
    """
    from nats.js import api

    kept = _permanent("RUNS", "rn.run.*", "rn.said.*.*")
    kept.discard = api.DiscardPolicy.OLD
    kept.max_msgs_per_subject = 1
    kept.max_age = RUN_SECONDS
    return kept


def _events(name: str, *subjects: str) -> StreamConfig:
    """Return a stream in which each subject takes one permanent message."""
    kept = _permanent(name, *subjects)
    kept.discard_new_per_subject = True
    kept.max_msgs_per_subject = 1
    return kept


def _permanent(name: str, *subjects: str) -> StreamConfig:
    """Return a stream from which nothing is ever removed."""
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
    """Return the stream under the object store `blobs`, as NATS's own clients lay it out.

    It cannot deny purging: an object's entry replaces the previous one by a roll-up, which the server forbids
    together with purging. Its content is addressed by hash.
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
    """Make the missing streams and check the others.

    Raises:
        HearthNetError: `bad_request` for a stream with other settings than promised, with the remedy;
            `capacity_exceeded` if the disk has no room.
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
    if different := differences(wanted, found):
        raise HearthNetError(
            "bad_request",
            f"the stream {wanted.name} in {folder} was made with other settings than HearthNet promises "
            f"({', '.join(different)}); keep a copy, move that folder away and start again",
        )


def differences(wanted: StreamConfig, found: StreamConfig) -> list[str]:
    """Return the required settings that a stream lacks, in the form `deny_purge is False`."""
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
