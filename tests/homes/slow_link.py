"""A line that is slow and loses packets, between two namespaces: a process that forwards what two TAP devices
carry. This kernel has no `netem`.

`python -m tests.homes.slow_link NAMESPACE DEVICE NAMESPACE DEVICE DELAY_MS LOSS SEED`: makes a device in each
namespace, writes a line, and forwards until it is ended. Each way takes `DELAY_MS` and loses a share `LOSS`.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_TAP_WITHOUT_HEADER: Final = 0x0002 | 0x1000
_LARGEST: Final = 65_536


def main(first: str, first_name: str, second: str, second_name: str, delay_ms: float, loss: float) -> None:
    """Forward until this process is ended."""
    ends = [_device(first, first_name), _device(second, second_name)]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    other = dict(zip(ends, reversed(ends), strict=True))
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for descriptor in select.select(ends, [], [], pause)[0]:
            frame = os.read(descriptor, _LARGEST)
            number += 1
            if random.random() >= loss:
                due = time.monotonic() + delay_ms / 1000
                heapq.heappush(waiting, (due, number, other[descriptor], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, descriptor, frame = heapq.heappop(waiting)
            try:
                os.write(descriptor, frame)
            except OSError:
                continue  # the device is down, or its queue is full: the packet is lost


def _device(namespace: str, name: str) -> int:
    """Make a TAP device in a namespace; it exists while its descriptor is open."""
    with open(f"/run/netns/{namespace}", "rb") as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return descriptor


if __name__ == "__main__":
    *names, delay, share, seed = sys.argv[1:]
    random.seed(seed)
    main(names[0], names[1], names[2], names[3], float(delay), float(share))
