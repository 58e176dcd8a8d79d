"""Addresses of homes: `host:port` as text, and the addresses of this computer."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final, NamedTuple

from hearthnet.core.errors import HearthNetError

DEFAULT_PORT: Final = 7422
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_WRITTEN: Final = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::(\d{1,5}))?")
# Reserved for examples. Connecting a UDP socket to it selects the source address and sends nothing.
_ELSEWHERE: Final = ("192.0.2.1", 9)


class Address(NamedTuple):
    """A host, by name or IP address (IPv6 without brackets), and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        """Return whether only this computer reaches it.

        Of names, only `localhost` counts as loopback.
        """
        return is_loopback(self.host)


def parse(text: str, default_port: int = DEFAULT_PORT) -> Address:
    """Return the address in `host`, `host:port` or `[IPv6]:port`.

    An accepted address has no characters that could end a string in a server's configuration or an address in
    a URL.

    Raises:
        HearthNetError: `bad_request` for any other text, with the allowed forms.
    """
    found = _WRITTEN.fullmatch(text)
    if found is not None:
        host, port = found[1] or found[2], int(found[3] or default_port)
        if 0 < port < 65536 and (_is_ipv6(host) if found[1] else _HOST.fullmatch(host)):
            return Address(host, port)
    raise HearthNetError(
        "bad_request",
        f"{text[:80]!r} is no address; write NAME, NAME:PORT or [IPV6]:PORT, such as kitchen:7422",
    )


def check_host(text: str) -> None:
    """Check that `text` is a name or an IP address to listen on.

    Raises:
        HearthNetError: `bad_request` for any other text.
    """
    if not (_HOST.fullmatch(text) or _is_ipv6(text)):
        raise HearthNetError("bad_request", f"{text[:80]!r} is no name and no IP address of this computer")


def is_loopback(host: str) -> bool:
    """Return whether `host` is this computer and cannot be reached by others there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reachable_host(listening_on: str) -> str:
    """Return the host under which others reach a server that listens on `listening_on`.

    That is `listening_on` itself, unless it means all addresses: then the source address of packets to other
    networks, without a way there the first address of this computer, and without any the host name.
    """
    try:
        if not ipaddress.ip_address(listening_on).is_unspecified:
            return listening_on
    except ValueError:
        return listening_on
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return next((str(one.ip) for one in own_networks()), socket.gethostname())


def own_networks() -> tuple[ipaddress.IPv4Interface, ...]:
    """Return the IPv4 addresses of this computer, each with its network, without those of loopback."""
    import ifaddr

    ips = [ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if ip.is_IPv4]
    found = {ipaddress.IPv4Interface(f"{ip.ip}/{ip.network_prefix}") for ip in ips}
    return tuple(sorted(one for one in found if not one.is_loopback))


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6 and "%" not in host
    except ValueError:
        return False
