"""The gateway as a service of its node: its listening socket, and uvicorn on it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import uvicorn

from hearthnet import __version__
from hearthnet.core.config import GatewayConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.core.node_state import GATEWAY
from hearthnet.gateway.app import build, lifespan
from hearthnet.gateway.context import Gateway
from hearthnet.gateway.http.connection_limits import ConnectionLimits, protocol
from hearthnet.gateway.http.rate_limits import is_loopback
from hearthnet.gateway.socket.engine import MAX_MESSAGE_BYTES, WebSocketConnection
from hearthnet.service.hosting.context import NodeContext
from hearthnet.service.hosting.service import Service

GRACE_SECONDS: Final = 2
"""The time for open requests when the gateway ends; the supervisor waits for 3.2 s."""
KEEP_ALIVE_SECONDS: Final = 15
_BACKLOG: Final = 512
_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(gateway: Gateway, patience: ConnectionLimits | None = None) -> AsyncIterator[Gateway]:
    """Listen, with `url` set, while the block lasts; `patience` limits connections.

    Raises:
        HearthNetError: `bad_request` if the address or the certificate of the settings cannot be used.
    """
    configured = gateway.config.gateway
    with _listening(configured) as listener:
        gateway.url = _url(listener, configured)
        server = _Server(_loaded(gateway, patience or ConnectionLimits()))
        async with lifespan(gateway):
            task = asyncio.create_task(server.serve(sockets=[listener]), name="gateway")
            try:
                await _started(server, task)
                yield gateway
            finally:
                server.should_exit = True
                await asyncio.wait({task})
        task.result()


class _Server(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


def _loaded(gateway: Gateway, patience: ConnectionLimits) -> uvicorn.Config:
    """Return uvicorn's settings, with the certificate loaded."""
    configured = gateway.config.gateway
    http: Any = protocol(patience, gateway.bodies)
    settings = uvicorn.Config(
        build(gateway),
        http=http,
        **_tls(gateway.home.path, configured),
        ws=functools.partial(WebSocketConnection, gateway.bodies),  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=configured.ping_seconds,
        ws_ping_timeout=configured.ping_seconds,
        ws_per_message_deflate=False,
    )
    try:
        settings.load()
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise HearthNetError(
            "bad_request",
            f"the gateway cannot use {configured.certificate!r} with {configured.key!r}: {reason}; see "
            "[gateway] certificate and key",
        ) from error
    return settings


def tls_files(folder: Path, configured: GatewayConfig) -> tuple[Path, Path]:
    """Return the PEM files of certificate and key; relative paths start at `folder`, that of the settings."""
    return folder / configured.certificate, folder / (configured.key or configured.certificate)


def _tls(folder: Path, configured: GatewayConfig) -> dict[str, Any]:
    """Return the PEM files for uvicorn."""
    if not configured.certificate:
        return {}
    certificate, key = tls_files(folder, configured)
    return {"ssl_certfile": certificate, "ssl_keyfile": key}


async def _started(server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    while not server.started:
        if task.done():
            task.result()
            raise HearthNetError("internal_error", "the gateway's server ended while it started")
        await asyncio.sleep(0.005)


@contextlib.contextmanager
def _listening(settings: GatewayConfig) -> Iterator[socket.socket]:
    """Yield a socket at the address of the settings, at a free port if theirs is in use."""
    host = settings.host
    if not settings.certificate:
        check_host(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, settings.port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                reason = error.strerror or type(error).__name__
                raise HearthNetError(
                    "bad_request", f"the gateway cannot listen at {host!r}: {reason}; see [gateway] host"
                ) from error
            _log.info("port %d is in use or not ours; a free one is taken", settings.port)
            listener.bind((host, 0))
        listener.listen(_BACKLOG)
        yield listener


def check_host(host: str) -> None:
    """Check the address of a gateway without a certificate.

    Raises:
        HearthNetError: `bad_request` if others reach it.
    """
    if host == "localhost" or is_loopback(host):
        return
    raise HearthNetError(
        "bad_request",
        f"the gateway listens at {host!r} with TLS only: set [gateway] certificate and key to PEM files, or "
        'host to "127.0.0.1"',
    )


def _url(listener: socket.socket, settings: GatewayConfig) -> str:
    """Return the gateway's address for a browser on this computer.

    The host is a name where the certificate is for names.
    """
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.certificate else "http"
    if settings.certificate and settings.names:
        host = settings.names[0]
    elif ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class GatewayService(Service):
    """The HTTP gateway of a node: it offers no capability and calls those of the mesh.

    It is open from `start` to `stop`; `address` is where it listens.
    """

    name: ClassVar[str] = GATEWAY
    version: ClassVar[str] = __version__

    def __init__(self) -> None:
        super().__init__()
        self._open = contextlib.AsyncExitStack()

    async def start(self, node: NodeContext) -> None:
        """Open the gateway; raises what `serving` raises."""
        gateway = Gateway.on(node.bus, node.home, node.config)
        self.address = (await self._open.enter_async_context(serving(gateway))).url

    async def stop(self) -> None:
        """Close the gateway in order."""
        await self._open.aclose()
