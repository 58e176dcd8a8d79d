"""Homes in network namespaces of their own on one bridge, as houses of a neighbourhood on one line.

    [home 1]--veth--+
    [home 2]--veth--+--bridge, in a namespace without a way out
    [home 3]--veth--+

A place may have a slow line instead (slow_link.py). A cut drops packets without an answer (nftables), as a
broken radio link does: connections notice nothing but silence. Needs root, `ip` and `nft` (system-deps.txt).
Namespaces are named after this process and removed at the end, with all processes in them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from tests.helpers.leaving import leave_out

_numbers: Final = itertools.count(1)
_TABLE: Final = "inet cuts"
_TUN: Final = "/dev/net/tun"


def need_namespaces() -> None:
    """Leave the test out where network namespaces cannot be made; in CI that is a failure."""
    if os.geteuid() != 0:
        leave_out("network namespaces take root")
    if not os.path.exists(_TUN):
        os.makedirs(os.path.dirname(_TUN), exist_ok=True)
        os.mknod(_TUN, stat.S_IFCHR | 0o600, os.makedev(10, 200))
    if missing := [program for program in ("ip", "nft") if shutil.which(program) is None]:
        leave_out(f"there is no {' and no '.join(missing)}: make system-deps")


class Place:
    """One network namespace; `before` comes before the words of a command that is to run in it."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.before = ("ip", "netns", "exec", name)

    def drop_from(self, addresses: Iterable[str]) -> None:
        """Drop what comes from `addresses`, and nothing else, from now on."""
        rules = "".join(f"add rule {_TABLE} in ip saddr {one} drop\n" for one in addresses)
        self.nft(f"flush chain {_TABLE} in\n{rules}")

    def move_to(self, address: str) -> None:
        """Have the place at another address of the network and at its own no longer, as DHCP does."""
        _ip("-n", self.name, "address", "flush", "dev", "eth0")
        _ip("-n", self.name, "address", "add", f"{address}/24", "dev", "eth0")
        self.address = address

    def nft(self, rules: str) -> None:
        """Carry out commands of nft(8) in one step."""
        _ip("netns", "exec", self.name, "nft", "-f", "-", given=rules)

    def close(self) -> None:
        """End every process of the namespace, and remove it."""
        for pid in _ip("netns", "pids", self.name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _ip("netns", "del", self.name)


class Line(NamedTuple):
    """The line between a place and the bridge: its delay each way, and the share of packets that it loses."""

    delay_ms: float
    loss: float = 0.0


class Network:
    """A bridge and `count` places on it, each reached by all others until `cut`. A context manager.

    `slow` gives places by their number a line of their own.
    """

    def __init__(self, count: int, slow: Mapping[int, Line] = MappingProxyType({})) -> None:
        self._name = f"hn{os.getpid()}x{next(_numbers)}"
        self._count = count
        self._slow = slow
        self._lines: list[subprocess.Popen[bytes]] = []
        self._cuts: set[tuple[int, int]] = set()
        self.places: list[Place] = []

    def __enter__(self) -> Self:
        _ip("netns", "add", self._name)
        try:
            self._in_bridge("link", "add", "br0", "type", "bridge")
            self._in_bridge("link", "set", "br0", "up")
            for number in range(self._count):
                self.places.append(self._place(number))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def cut(self, *pairs: tuple[int, int]) -> None:
        """Drop what goes from the first place of each pair to its second; all else gets through."""
        changed, self._cuts = self._cuts ^ set(pairs), set(pairs)
        for to in {to for _, to in changed}:
            self.places[to].drop_from(self.places[one].address for one, at in pairs if at == to)

    def cut_off(self, *places: int) -> None:
        """Cut each of `places` off from all others, both ways; all else gets through."""
        others = range(self._count)
        pairs = [(one, other) for one in places for other in others if one != other]
        self.cut(*pairs, *((other, one) for one, other in pairs))

    def heal(self) -> None:
        """Let everything through again."""
        self.cut()

    def _place(self, number: int) -> Place:
        name, cable = f"{self._name}p{number}", f"v{number}"
        address = f"10.77.0.{number + 1}"
        _ip("netns", "add", name)
        if line := self._slow.get(number):
            self._forward(name, cable, line)
        else:
            self._in_bridge("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._in_bridge("link", "set", cable, "master", "br0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        place = Place(name, address)
        place.nft(f"add table {_TABLE}\nadd chain {_TABLE} in {{ type filter hook input priority 0; }}\n")
        return place

    def _forward(self, place: str, cable: str, line: Line) -> None:
        names = (place, "eth0", self._name, cable, str(line.delay_ms), str(line.loss), cable)
        command = [sys.executable, "-m", "tests.homes.slow_link", *names]
        self._lines.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert self._lines[-1].stdout is not None
        assert self._lines[-1].stdout.readline(), f"no line to {place}"

    def _in_bridge(self, *command: str) -> None:
        _ip("-n", self._name, *command)

    def _close(self) -> None:
        for line in self._lines:
            line.kill()
            line.communicate()
        for place in self.places:
            place.close()
        _ip("netns", "del", self._name)


def _ip(*command: str, given: str = "") -> str:
    done = subprocess.run(["ip", *command], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
