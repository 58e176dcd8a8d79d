"""The streams of JetStream: made by the supervisor alone, refused if weaker than promised.

    MARKET      mk.post.<owner>.<client id>,      one event a subject; what is deleted is erased
                mk.post.<home>.<sequence>-<hash>  those of other homes, likewise
    CHAINS      ch.<topic>.<community>.        entries of the community's event log, permanently
                <author>.<sequence>
    COMMUNITY   cm.event.<author>.<sequence>,     one event a subject, permanently
                cm.revoked.<issuer>.<token id>
    COUNTERS    ct.<issuer>.<token id>.calls,     counters (`Nats-Incr`), gone 25 h after the last increment
                ct.<sender>.<log>.<day>
    KV_claims   $KV.claims.<key>                  one record a key, changed by compare-and-set
    AUDIT       au.entry                          the audit log, in order; the oldest go by `trim_audit`
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
from hearthnet.service.effects.audit_log import STREAM as AUDIT

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig

_NO_RESOURCES: Final = frozenset({10023, 10028, 10047})
_TRIMMING: Final = frozenset({"discard", "max_msgs", "max_msg_size"})
"""The settings of the audit log's stream that differ while its oldest entries are removed."""
_CLOSED_BYTES: Final = 1
"""A limit on the size of messages that no entry meets."""

COUNTED_SECONDS: Final = 25 * 60 * 60
"""The lifetime of a counter: longer than the longest life of a token, a day, and its hour of grace."""


RUN_SECONDS: Final = 25 * 60 * 60
"""The lifetime of a saved run: a day in which it can be resumed, and an hour to report its expiry."""


def promised_streams() -> tuple[StreamConfig, ...]:
    """Return all streams, as NATS's own clients lay them out where these use them too."""
    from nats.js.api import DiscardPolicy

    # The first message of a subject stays; or the newest one replaces it.
    first: dict[str, Any] = {"discard_new_per_subject": True, "max_msgs_per_subject": 1}
    newest: dict[str, Any] = {"discard": DiscardPolicy.OLD, "max_msgs_per_subject": 1}
    return (
        # Of the logs it alone allows the erasure of single messages, for deleted posts (decisions/0124).
        # Events of other homes are appended a page at a time (`jetstream_records.write`).
        _stream("MARKET", "mk.post.*.*", deny_delete=False, allow_atomic=True, **first),
        # Revocations expire with their tokens.
        _stream("COMMUNITY", "cm.event.*.*", "cm.revoked.*.*", allow_msg_ttl=True, **first),
        _stream("COUNTERS", "ct.>", allow_msg_counter=True, max_age=COUNTED_SECONDS, **newest),
        _stream(f"KV_{CLAIMS}", f"$KV.{CLAIMS}.>", max_msgs_per_subject=1),
        # One subject, so that its sequence is the chain's.
        _stream(AUDIT, "au.entry"),
        _stream("RUNS", "rn.run.*", "rn.said.*.*", max_age=RUN_SECONDS, **newest),
        # An entry stays when the words of its event are erased (decisions/0211).
        _stream("CHAINS", "ch.*.*.*.*", allow_atomic=True, **first),
        # It cannot deny purging: an object's entry replaces the previous one by a roll-up, which the server
        # forbids together with purging. Its content is addressed by hash.
        _stream(
            f"OBJ_{BLOBS}",
            f"$O.{BLOBS}.C.>",
            f"$O.{BLOBS}.M.>",
            deny_delete=False,
            deny_purge=False,
            allow_rollup_hdrs=True,
        ),
    )


def _stream(name: str, *subjects: str, **others: Any) -> StreamConfig:
    """Return a stream from which nothing is ever removed, unless `others` say otherwise."""
    from nats.js import api

    permanent: dict[str, Any] = {
        "storage": api.StorageType.FILE,
        "retention": api.RetentionPolicy.LIMITS,
        "discard": api.DiscardPolicy.NEW,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "allow_direct": True,
        "deny_delete": True,
        "deny_purge": True,
    }
    return api.StreamConfig(name=name, subjects=list(subjects), **permanent | others)


async def ensure(js: JetStreamContext, folder: Path) -> None:
    """Make the missing streams and check the others.

    Raises:
        HearthNetError: `bad_request` for a stream with other settings than promised, with the remedy;
            `capacity_exceeded` if the disk has no room.
    """
    from nats.js import errors

    for promised in promised_streams():
        try:
            await _ensure(js, promised, folder)
        except errors.APIError as error:
            raise _refused(promised, error) from error


async def _ensure(js: JetStreamContext, promised: StreamConfig, folder: Path) -> None:
    from nats.js import errors

    try:
        found = (await js.stream_info(str(promised.name))).config
    except errors.NotFoundError:
        found = (await js.add_stream(promised)).config
    if (promised.name == AUDIT and is_trimming(found)) or _lacks_batches(promised, found):
        found = (await js.update_stream(promised)).config
    if different := differences(promised, found):
        raise HearthNetError(
            "bad_request",
            f"the stream {promised.name} in {folder} was made with other settings than HearthNet promises "
            f"({', '.join(different)}); keep a copy, move that folder away and start again",
        )


def differences(promised: StreamConfig, found: StreamConfig) -> list[str]:
    """Return the required settings that a stream lacks, in the form `deny_purge is False`."""
    demanded: dict[str, Any] = {key: value for key, value in vars(promised).items() if value is not None}
    demanded.pop("duplicate_window")  # the server's own default; nothing here relies on it
    return [
        f"{key} is {getattr(found, key)}" for key, value in demanded.items() if getattr(found, key) != value
    ]


def _lacks_batches(promised: StreamConfig, found: StreamConfig) -> bool:
    """Return whether all that the stream lacks are batches: an earlier version made it."""
    return [setting.partition(" ")[0] for setting in differences(promised, found)] == ["allow_atomic"]


def is_trimming(found: StreamConfig) -> bool:
    """Return whether the audit log's stream is as `trim_audit` leaves it where it is interrupted."""
    different = {setting.partition(" ")[0] for setting in differences(_audit(), found)}
    return found.max_msg_size == _CLOSED_BYTES and different <= _TRIMMING


async def trim_audit(js: JetStreamContext, upto: int) -> None:
    """Remove the entries of the audit log up to number `upto`, and no other.

    The stream denies purging for good, so its limit on messages does it. Meanwhile it takes no entry, whose
    place would cost one more: the writers wait and repeat. `reopen_audit` ends that, also after an error.
    """
    from nats.js.api import DiscardPolicy

    closed = _audit().evolve(max_msg_size=_CLOSED_BYTES)
    state = (await js.update_stream(closed)).state
    left = state.last_seq - upto
    if left > 0 and state.messages > left:
        await js.update_stream(closed.evolve(discard=DiscardPolicy.OLD, max_msgs=left))


async def reopen_audit(js: JetStreamContext) -> None:
    """Give the audit log's stream its promised settings, with which it takes entries."""
    await js.update_stream(_audit())


def _audit() -> StreamConfig:
    return next(stream for stream in promised_streams() if stream.name == AUDIT)


def _refused(promised: StreamConfig, error: Any) -> HearthNetError:
    if error.err_code in _NO_RESOURCES:
        return HearthNetError(
            "capacity_exceeded", "the disk has no room for JetStream; make room and start again"
        )
    return HearthNetError("internal_error", f"cannot make the stream {promised.name}: {error.description}")
