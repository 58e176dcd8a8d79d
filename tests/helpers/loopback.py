"""An HTTP server on loopback for as long as a test needs one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


@dataclass
class Loopback(ABC):
    """A context manager. One that ended can be entered again, at the same place."""

    port: int = field(default=0, kw_only=True)
    """Where it is; 0 for anywhere."""

    @abstractmethod
    def handler(self) -> type[BaseHTTPRequestHandler]:
        """What takes a request; its `owner` is this."""

    def __enter__(self) -> Self:
        handler = type("Handler", (self.handler(),), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.port = self._server.server_port
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
