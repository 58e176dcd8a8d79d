"""The life of one node: the server, every service, a signal, and an orderly end.

    lock, home --> server --> services start side by side --> ready --> SIGINT or SIGTERM
    --> services withdraw and drain --> server --> nothing is left

The first signal ends the node in order, within 5 s even if every process has to be killed; a second one
ends it at once. A terminal that closes (SIGHUP) counts as a signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from hearthnet import __version__
from hearthnet.core.errors import INTERRUPTED, OK, first_of
from hearthnet.core.files import write_whole
from hearthnet.core.node_state import NodeState, ServiceState
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.login_links import LinkBook
from hearthnet.supervisor.backups import Backups
from hearthnet.supervisor.community.community_sync import Community
from hearthnet.supervisor.community.operators import Operators
from hearthnet.supervisor.console import ConsoleProgress, NodeConsole
from hearthnet.supervisor.nats import address, door_server
from hearthnet.supervisor.nats.access_control import ServerRoster
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.announcer import Announcer
from hearthnet.supervisor.nats.audit_retention import Retention
from hearthnet.supervisor.nats.door_server import DoorServer, admit_at_both
from hearthnet.supervisor.nats.home_finder import LinkSeeker
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.nats_process import NAME
from hearthnet.supervisor.nats.nats_server import Server
from hearthnet.supervisor.os.cancellation import cancellable, with_grace
from hearthnet.supervisor.os.disk import Disk, file_errors
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.supervisor.ready_file import ReadyFile
from hearthnet.supervisor.services.service_process import ServiceProcess
from hearthnet.supervisor.services.specs import ChildSpec, fork_server

# Together with the time for killing remaining processes, under the 5 s that are promised.
SERVICE_GRACE_SECONDS: Final = 3.2
SERVER_GRACE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 1.0
DISK_SECONDS: Final = 2.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_log = logging.getLogger(__name__)


class Supervisor:
    """The supervisor of one prepared home, whose lock the caller holds. Used once."""

    def __init__(
        self,
        prepared: Prepared,
        specs: Sequence[ChildSpec],
        screen: NodeConsole,
        ready_file: ReadyFile | None,
        package_errors: tuple[str, ...] = (),
    ) -> None:
        self._prepared = prepared
        self._package_errors = package_errors
        self._home = prepared.home
        self._screen = screen
        self._ready_file = ready_file
        self._started_at = now_ms()
        self._ready = False
        self._signals = 0
        self._stop = asyncio.Event()
        operators = Operators(self._home, self._screen.line)
        self._server = Server(prepared, LogFile(self._home.log(NAME)), self._server_news, operators.logins)
        self._door = DoorServer(
            prepared, LogFile(self._home.log(door_server.NAME)), self._server.leaf, self._server_news
        )
        self._community = Community(prepared, self._admit, self._server_news, operators)
        self._server.on_linked = self._community.announce_link
        community, settings = prepared.roster.community_id, prepared.config.community
        self._announcer = Announcer(
            community,
            lambda: self._server.leaf.listening(self._server.state.leaf_port),
            self._renew,
            self._publish_state,
            is_on=settings.zeroconf,
        )
        missing = (lambda: self._server.unlinked_since, lambda: self._door.unrouted_since)
        self._seekers = tuple(
            LinkSeeker(
                community, since, lambda: self._server.leaf.fingerprints, self._move, self._server_news
            )
            for since in (missing if settings.zeroconf else ())
        )
        self._retention = Retention(self._home, prepared.identity, community, prepared.config.audit)
        # No process writes into this pipe; its end closes when this process dies.
        self._lifeline, self._held = os.pipe()
        self._forks = fork_server(self._home, specs)
        self._children = tuple(
            ServiceProcess(
                spec, LogFile(self._home.log(spec.name)), self._lifeline, self._child_news, self._forks
            )
            for spec in specs
        )
        self._backups = Backups(self._home, prepared.config.backup, self._groups, self._screen.line)
        self._disk = Disk(self._home)
        self._announced: dict[str, str] = {}
        self._unwritten: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        """Run the node until a signal; return the exit code.

        Raises the error that kept the node from starting.
        """
        with self._handled_signals():
            work = asyncio.create_task(self._work())
            stop = asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                work.cancel()
                stop.cancel()
                outcome = (await asyncio.gather(work, return_exceptions=True))[0]
                await self._end()
        if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
            raise first_of(outcome)
        return INTERRUPTED if self._signals > 1 else OK

    @property
    def state(self) -> NodeState:
        """The present state of the node."""
        return NodeState(
            pid=os.getpid(),
            node_id=self._prepared.identity.node_id,
            display_name=self._prepared.config.display_name,
            version=__version__,
            server=msgspec.structs.replace(self._server.state, announced=self._announcer.is_announced),
            services=tuple(_noted(child.state, self._disk.note) for child in self._children),
            started_at=self._started_at,
            ready=self._ready,
            telemetry=self._prepared.config.telemetry.endpoint,
            package_errors=self._package_errors,
            door=self._door.state,
        )

    async def _work(self) -> None:
        self._show_progress()
        if self._forks is not None:
            await self._forks.open()
        await self._server.start()
        with file_errors(self._home.state):
            self._write_state()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._server.keep())
            tasks.create_task(cancellable(self._server.guarded.guard()))
            tasks.create_task(cancellable(self._server.guarded.end_silent_links()))
            tasks.create_task(self._door.keep())
            tasks.create_task(cancellable(self._door.guarded.guard()))
            tasks.create_task(cancellable(self._door.guarded.end_silent_links()))
            tasks.create_task(cancellable(self._server.watch_link()))
            if not address.is_loopback(self._prepared.config.community.host):
                tasks.create_task(cancellable(self._announcer.follow()))
            tasks.create_task(cancellable(self._door.watch_routes()))
            for seeker in self._seekers:
                tasks.create_task(cancellable(seeker.follow()))
            tasks.create_task(cancellable(self._community.follow(self._server.state.url)))
            tasks.create_task(cancellable(self._retention.follow(self._server.state.url)))
            tasks.create_task(self._backups.follow())
            tasks.create_task(self._backups.schedule())
            tasks.create_task(self._watch_disk())
            for child in self._children:
                tasks.create_task(child.supervise())
            await asyncio.gather(*(child.settled() for child in self._children))
            self._become_ready()

    async def _admit(self, roster: ServerRoster) -> None:
        try:
            await admit_at_both(self._server, self._door, roster)
        finally:
            self._publish_state()

    async def _renew(self) -> None:
        """Have server and door take over that this computer has other addresses."""
        await self._server.renew()
        await self._door.guarded.refresh()
        self._publish_state()

    async def _move(self, fingerprint: str, place: Address) -> bool:
        """Have server and door link to the home with `fingerprint` at `place`; return whether that is new."""
        is_new = await self._server.move_link(fingerprint, place)
        if is_new:
            await self._door.guarded.refresh()
        return is_new

    def _groups(self) -> tuple[int, ...]:
        """Return the process groups of the node's running processes."""
        found = (self._server.pid, *(child.state.pid for child in self._children))
        return tuple(pid for pid in found if pid)

    def _become_ready(self) -> None:
        self._ready = True
        self._publish_state()
        if self._ready_file is not None:
            self._ready_file.write(self.state)
        self._announced = {child.spec.name: child.state.state for child in self._children}
        self._screen.table(self._home, self.state, self._link())

    def _link(self) -> str:
        """Return a one-time link to the gateway's page, empty where none can be made."""
        url = self.state.gateway_url
        try:
            return LinkBook(self._home).link(url) if url else ""
        except OSError as error:
            _log.error("no link to the page: %s", error.strerror)
            return ""

    async def _end(self) -> None:
        """Stop the services, then the server; each by force if it does not end in time."""
        self._stop.set()
        self._screen.end_progress()
        if self._ready_file is not None:
            self._ready_file.remove()
        await asyncio.gather(
            *(child.stop(SERVICE_GRACE_SECONDS) for child in self._children),
            with_grace(self._community.close()),
            with_grace(self._server.close()),
            with_grace(self._door.guarded.close()),
            self._backups.stop(),
        )
        if self._forks is not None:
            await self._forks.close()
        await asyncio.gather(self._server.stop(SERVER_GRACE_SECONDS), self._door.stop(SERVER_GRACE_SECONDS))
        if self._unwritten is not None:
            self._unwritten.cancel()
        self._disk.forget_spare()
        with contextlib.suppress(OSError):
            self._home.state.unlink(missing_ok=True)
        os.close(self._lifeline)
        os.close(self._held)
        if self._signals:
            self._screen.line("the node has ended")

    @contextlib.contextmanager
    def _handled_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _signalled(self, number: signal.Signals) -> None:
        self._signals += 1
        _log.info("%s", number.name)
        self._stop.set()
        if self._signals == 1:
            self._screen.end_progress()
            self._screen.line("ending: services first, then the server; once more to end at once")
            return
        for child in self._children:
            child.kill()
        self._server.kill()
        self._door.guarded.nats.kill()

    def _server_news(self, text: str) -> None:
        self._screen.line(text)
        self._publish_state()

    async def _watch_disk(self) -> None:
        """Report a full disk, and restart the server once there is room; until cancelled."""
        while True:
            try:
                change = self._disk.look(self._server.met_full_disk)
            except OSError as error:
                _log.error("cannot see what is free in %s: %s", self._home.path, error.strerror)
                change = None
            if change == "full":
                _log.error("%s", self._disk.note)
                self._server_news(self._disk.note or "")
            elif change == "room":
                await self._use_room()
            await asyncio.sleep(DISK_SECONDS)

    async def _use_room(self) -> None:
        harmed = self._server.met_full_disk
        then = f"; {NAME} is restarted, for it does not get over a full disk" if harmed else ""
        self._server_news(f"the disk has room again{then}")
        if harmed:
            await self._server.stop(SERVER_GRACE_SECONDS)

    def _child_news(self, child: ServiceProcess) -> None:
        """Publish a change of a service; after the start, people see only crashes and recoveries."""
        if self._stop.is_set():
            return
        self._publish_state()
        if not self._ready:
            self._show_progress()
            return
        before, now = self._announced.get(child.spec.name), child.state.state
        if now == before or now == "starting":
            return
        self._announced[child.spec.name] = now
        if now == "waiting":
            self._screen.line(f"{child.spec.name} {child.state.note}; it is started again")
        else:
            self._screen.table(self._home, self.state)

    def _publish_state(self) -> None:
        """Rewrite the state file; on a full disk the old one stays until there is room."""
        if not self._server.state.url:
            return
        if self._unwritten is not None:
            self._unwritten.cancel()
            self._unwritten = None
        try:
            self._write_state()
        except OSError as error:
            _log.error("cannot write %s: %s", self._home.state, error.strerror)
            self._unwritten = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._publish_state)

    def _write_state(self) -> None:
        write_whole(self._home.state, msgspec.json.format(msgspec.json.encode(self.state), indent=1) + b"\n")

    def _show_progress(self) -> None:
        server = "ready" if self._server.state.url else "starting"
        rows = [ConsoleProgress(NAME, server, "", self._server.state.url)]
        for child in self._children:
            detail = child.progress or child.state.note or ""
            rows.append(ConsoleProgress(child.spec.name, child.state.state, child.stage, detail))
        self._screen.progress(rows)


def _noted(service: ServiceState, note: str | None) -> ServiceState:
    """Return the service with `note` before its own."""
    if note is None:
        return service
    return msgspec.structs.replace(service, note=f"{note}; {service.note}" if service.note else note)
