"""The process from which a node's services are forked, so that they share what each of them would import.

    python -P -m hearthnet.service.hosting.fork_server HOME MODULE...

It imports the modules and then reads requests of its supervisor from a socket (SOCK_SEQPACKET), whose number
is in HEARTHNET_FORKS_FD. It answers each with the id of a forked process, and reports that process's end. It
ends when the supervisor closes the socket, and its forked processes end with it. HOME is shown by `ps`.

See: docs/decisions/0217-services-are-forked.md. Linux alone has the signal that this needs.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from hearthnet.service.hosting import parent_death

FORKS_VARIABLE: Final = "HEARTHNET_FORKS_FD"
MAX_BYTES: Final = 64 * 1024
_MAX_DESCRIPTORS: Final = 8


class ForkRequest(msgspec.Struct, frozen=True):
    """A process to fork: it calls `main` of `module` with `arguments` and ends with the code that it returns.

    The first of the descriptors that come with a request becomes its output. The others are named in its
    environment by the variables `descriptors`.
    """

    title: str
    module: str
    arguments: tuple[str, ...]
    descriptors: tuple[str, ...]


class ForkReport(msgspec.Struct, frozen=True):
    """The process `pid` of a request, or the reason why there is none; later its exit code.

    `code` is negative for a signal.
    """

    pid: int
    error: str = ""
    code: int | None = None


def serve(connection: socket.socket) -> ForkRequest | None:
    """Fork on request; return the request in each forked process, and None when `connection` is closed."""
    ended, woken = os.pipe()
    for descriptor in (ended, woken):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    poll = select.poll()
    for readable in (connection.fileno(), ended):
        poll.register(readable, select.POLLIN)
    while True:
        for readable, _ in poll.poll():
            if readable == ended:
                os.read(ended, 4096)
                _report_ended(connection)
                continue
            data, descriptors, _, _ = socket.recv_fds(
                connection, MAX_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
            if not data:
                return None
            request = msgspec.json.decode(data, type=ForkRequest)
            if _is_forked(connection, descriptors):
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (ended, woken):
                    os.close(descriptor)
                _become(request, descriptors)
                return request


def _is_forked(connection: socket.socket, descriptors: Sequence[int]) -> bool:
    """Fork; return whether this is the new process, which has closed `connection`."""
    own = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        pid, report = -1, ForkReport(0, error.strerror or "no process")
    else:
        report = ForkReport(pid)
    if not pid:
        connection.close()
        if not parent_death.die_with(own):
            os._exit(1)
        return True
    for descriptor in descriptors:
        os.close(descriptor)
    connection.send(msgspec.json.encode(report))
    return False


def _become(request: ForkRequest, descriptors: Sequence[int]) -> None:
    """Make this process the one that was requested: leader of a session, with an output of its own."""
    os.setsid()
    output, *named = descriptors
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.environ.update({name: str(number) for name, number in zip(request.descriptors, named, strict=True)})
    import setproctitle

    setproctitle.setproctitle(request.title)


def _report_ended(connection: socket.socket) -> None:
    """Report every forked process that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        connection.send(msgspec.json.encode(ForkReport(pid, code=os.waitstatus_to_exitcode(status))))


def main(arguments: list[str]) -> int:
    """Import the modules and serve; in a forked process, run the request and return its status."""
    for name in arguments[1:]:
        importlib.import_module(name)
    connection = socket.socket(fileno=int(os.environ.pop(FORKS_VARIABLE)))
    # What is there now is never garbage. A collection would write into each of its pages, and so copy them.
    gc.collect()
    gc.freeze()
    request = serve(connection)
    if request is None:
        return 0
    status: int = importlib.import_module(request.module).main(list(request.arguments))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
