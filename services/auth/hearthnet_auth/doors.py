"""Doors opened and closed by events, and tried from outside before they are opened.

See: docs/protocol/community.md#doors, docs/decisions/0223.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from typing import Final

from hearthnet.core import b64, now_ms
from hearthnet.trust import CommunityAuthor, CommunityEvent, Identity, Roster
from hearthnet_auth.schemas import DoorInput

OPENED: Final = "community.door.opened"
CLOSED: Final = "community.door.closed"
_CHECK_SECONDS: Final = 5.0
_GREETING: Final = b"INFO "
_GREETING_BYTES: Final = 64 * 1024


def open_door(held: Roster, own: Identity, wanted: DoorInput) -> CommunityEvent:
    """Return the event that opens the door of this node, or the one that did so before."""
    terms = {"address": wanted.address, "route": wanted.route, "key": wanted.key}
    is_open = any(
        one.node_id == own.node_id and (one.address, one.route, one.key) == tuple(terms.values())
        for one in held.doors
    )
    earlier = _last(held, own, OPENED, terms) if is_open else None
    return earlier or CommunityAuthor(held, own).open_door(**terms, now_ms=now_ms())


def close_door(held: Roster, own: Identity, node: str) -> CommunityEvent:
    """Return the event that closes the door of `node`, or the one by which this node did so before."""
    is_open = any(one.node_id == node for one in held.doors)
    earlier = None if is_open else _last(held, own, CLOSED, {"node_id": node})
    return earlier or CommunityAuthor(held, own).close_door(node, now_ms())


def _last(held: Roster, own: Identity, event_type: str, data: dict[str, str]) -> CommunityEvent | None:
    for event in reversed(held.events):
        if (event.author, event.event_type, event.data) == (own.node_id, event_type, data):
            return event
    return None


async def why_unreached(door: DoorInput) -> str:
    """Return why the holder of the key does not answer at both addresses, for a person; empty if it does.

    Nothing is sent but the start of TLS, and nothing of an answer is returned.
    """
    # On loopback homes link without TLS.
    for place, is_plain in ((door.address, _on_loopback(door.address)), (door.route, False)):
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                if not await (_greets(place) if is_plain else _has_key(place, door.key)):
                    return f"another server answers at {place}"
        except TimeoutError:
            return f"no answer from {place}"
        except (OSError, ValueError):
            return f"{place} refuses connections, or is no address that is known here"
    return ""


async def _greets(place: str) -> bool:
    """Return whether a server without TLS answers as nats-server does."""
    reader, writer = await asyncio.open_connection(*_parted(place), limit=_GREETING_BYTES)
    try:
        return (await reader.readline()).startswith(_GREETING)
    finally:
        writer.close()


async def _has_key(place: str, key: str) -> bool:
    """Return whether the server there has a certificate with the public key `key`, an id."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection(*_parted(place), ssl=context)
    data = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    public = x509.load_der_x509_certificate(data or b"").public_key()
    return isinstance(public, Ed25519PublicKey) and f"ed25519:{b64(public.public_bytes_raw())}" == key


def _parted(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    return host.strip("[]"), int(port)


def _on_loopback(place: str) -> bool:
    host = _parted(place)[0]
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
