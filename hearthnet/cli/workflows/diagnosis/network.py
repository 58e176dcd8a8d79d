"""Checks of the network: ports, the certificate of the gateway, the address in invites, the upstream home."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hearthnet.cli.workflows.diagnosis.problem import Examined, Problem, fault, of_error, warning
from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from hearthnet.core.config import GatewayConfig
    from hearthnet.core.home import Home
    from hearthnet.supervisor.nats.address import Address
    from hearthnet.supervisor.nats.leaf_links import Upstream

ANSWER_SECONDS: Final = 5.0
_ENDS_SOON_MS: Final = 14 * 24 * 3_600_000


def ports(examined: Examined) -> Iterator[Problem]:
    """Check, while the node does not run, that no other program uses its ports."""
    from hearthnet.supervisor.nats.address import DEFAULT_PORT

    config = examined.config
    if config is None or examined.node is not None:
        return
    community = config.community.port
    if community not in (0, DEFAULT_PORT) and _is_taken(config.community.host, community):
        yield fault(
            "ports.community",
            f"another program uses port {community}, the one for other homes: the node will not start",
            "end that program, or set [community] port to a free one",
        )
    others = [("ports.server", "127.0.0.1", config.server.port)]
    if config.gateway.enabled:
        others.append(("ports.gateway", config.gateway.host, config.gateway.port))
    for check, host, port in others:
        if port and _is_taken(host, port):
            yield warning(
                check,
                f"another program uses port {port}; the node will take a free one",
                "end that program, or set another port in hearthnet.toml, if the number matters",
            )


def _is_taken(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def gateway_certificate(examined: Examined) -> Iterator[Problem]:
    """Check that the gateway has a certificate if it needs one, and that browsers can use it today."""
    config = examined.config
    if config is None or not config.gateway.enabled:
        return
    from hearthnet.gateway.server import check_host, tls_files

    configured = config.gateway
    if not configured.certificate:
        try:
            check_host(configured.host)
        except HearthNetError as error:
            yield of_error("gateway.certificate", error, "set certificate and key, or host to 127.0.0.1")
        return
    certificate, key = tls_files(examined.home.path, configured)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        yield fault(
            "gateway.certificate",
            f"the gateway cannot use the certificate {certificate} with the key {key}: {reason}",
            "name PEM files that belong together in [gateway] certificate and key",
        )
        return
    yield from _dates_and_names(certificate, configured, examined.now_ms)


def _dates_and_names(path: Path, configured: GatewayConfig, now: int) -> Iterator[Problem]:
    from cryptography import x509

    found = x509.load_pem_x509_certificate(path.read_bytes())
    begin, end = (
        int(time.timestamp() * 1000) for time in (found.not_valid_before_utc, found.not_valid_after_utc)
    )
    renew = f"renew {path}, then start the node again"
    if now < begin:
        yield fault(
            "gateway.certificate",
            f"{path} is valid from {found.not_valid_before_utc:%Y-%m-%d}; by the clock that is to come",
            "set the clock, or get a certificate that is valid now",
        )
    elif now > end:
        yield fault("gateway.certificate", f"{path} was valid to {found.not_valid_after_utc:%Y-%m-%d}", renew)
    elif now > end - _ENDS_SOON_MS:
        yield warning("gateway.certificate", f"{path} ends on {found.not_valid_after_utc:%Y-%m-%d}", renew)
    with contextlib.suppress(x509.ExtensionNotFound):
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        held = {str(name).lower() for name in names.get_values_for_type(x509.DNSName)}
        held |= {str(address) for address in names.get_values_for_type(x509.IPAddress)}
        wild = {name.partition(".")[2] for name in held if name.startswith("*.")}
        lacking = [
            name
            for name in configured.names
            if name.lower() not in held and name.partition(".")[2].lower() not in wild
        ]
        if lacking:
            yield fault(
                "gateway.certificate",
                f"{path} is not for {', '.join(lacking)}, which [gateway] names",
                "get a certificate for these names, or take them out of names",
            )


def own_address(examined: Examined) -> Iterator[Problem]:
    """Check that the address that invites name leads to this computer."""
    from hearthnet.supervisor.nats import address

    config = examined.config
    if config is None or examined.home.upstream.exists():
        return
    named, host = config.community.address, config.community.host
    if not named:
        if address.is_loopback(host) and examined.roster is not None and len(examined.roster.members) > 1:
            yield warning(
                "community.address",
                "other homes reach this one from this computer only",
                'set [community] host to "0.0.0.0", then start the node again',
            )
        return
    try:
        parsed = address.parse(named)
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(parsed.host, parsed.port)}
    except HearthNetError as error:
        yield of_error("community.address", error)
    except (OSError, UnicodeError):
        yield fault(
            "community.address",
            f"nobody knows the name {parsed.host} of [community] address",
            "name an address that others can look up, or leave address empty",
        )
    else:
        if not any(_is_own(one) for one in found):
            yield warning(
                "community.address",
                f"{parsed.host} is {', '.join(sorted(found))}, and that is no address of this computer",
                "if the router does not forward that address to here, set [community] address anew and make "
                "new invites",
            )


def _is_own(ip: str) -> bool:
    """Return whether this computer has the address: only then a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
        try:
            probe.bind((ip, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def link(examined: Examined) -> Iterator[Problem]:
    """Check that an open door answers, or where there is none the home that was joined."""
    from hearthnet.supervisor.nats.leaf_links import Upstream, door_address, load_upstream, usable

    doors = () if examined.roster is None else tuple(map(door_address, usable(examined.roster.doors)))
    if doors:
        ways = [Upstream(one.address, one.fingerprint) for one in doors]
        problems = [_reach_anywhere(examined.home, way) for way in ways]
        if problems[0] is not None and None not in problems:
            yield problems[0]
        return
    try:
        upstream = load_upstream(examined.home)
    except HearthNetError:
        return  # `upstream` reports it
    if upstream is None:
        return
    problem = _reach_anywhere(examined.home, upstream)
    if problem is not None:
        yield problem
    elif examined.node is not None and examined.node.server.upstream == "lost":
        yield fault(
            "link",
            f"the home at {upstream.address} answers, and this node is not linked to it: it may refuse this "
            "node, whose membership ended there",
            "ask a member (hearthnet members), and look into: hearthnet logs nats-server",
        )


def _reach_anywhere(home: Home, upstream: Upstream) -> Problem | None:
    """Return why the home answers nowhere: neither where it was found on the network, nor at its address."""
    from hearthnet.supervisor.nats.address import parse
    from hearthnet.supervisor.nats.found_addresses import FoundAddresses

    problem = None
    for place in (*FoundAddresses(home.found_addresses).of(upstream.fingerprint), parse(upstream.address)):
        problem = asyncio.run(_reach(place, upstream))
        if problem is None:
            break
    return problem


def announcement(examined: Examined) -> Iterator[Problem]:
    """Check that a running node that others reach is announced on its network."""
    config, node = examined.config, examined.node
    if config is None or node is None or not node.ready or not config.community.zeroconf:
        return
    # Homes that link to another one are not looked for, and others have a fingerprint where they are reached.
    if node.server.fingerprint and not node.server.announced and (not node.server.upstream or node.door):
        yield warning(
            "community.announced",
            "this node is not announced on its network: a home that knows an old address does not find it",
            "connect this computer to a network, and look into logs/up.log; if it is meant so, set "
            "[community] zeroconf = false",
        )


async def _reach(address: Address, upstream: Upstream) -> Problem | None:
    """Return why the home at `address` cannot be reached; None if it answers."""
    from hearthnet.supervisor.nats import certificate

    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
        if upstream.fingerprint:
            await certificate.fetch(address, upstream.fingerprint)
    except TimeoutError:
        return _unreachable(address, "nothing answers within 5 s: a wrong address, a firewall, or it is off")
    except socket.gaierror:
        return fault(
            "link.name",
            f"nobody knows the name {address.host}, where the home is to which this one links",
            "look at this computer's network, or redeem a new invite that names an address",
        )
    except ConnectionRefusedError:
        return _unreachable(
            address, "its computer refuses the connection: no node runs there, or its port is closed"
        )
    except OSError as error:
        return _unreachable(address, error.strerror or str(error))
    except HearthNetError as error:
        if error.code == "invalid_signature":
            return fault(
                "link.certificate",
                f"another server than the one that was joined answers at {address}",
                "if that home has moved, redeem a new invite: hearthnet invite redeem",
            )
        return _unreachable(address, "a server answers there without TLS, or not at all")
    return None


def _unreachable(address: Address, reason: str) -> Problem:
    return fault(
        "link.answer",
        f"the home at {address}, to which this one links, cannot be reached: {reason}",
        "ask whether its node runs and its address is still that one; on the same network it is found "
        "without it where both have [community] zeroconf = true, else redeem a new invite",
    )
