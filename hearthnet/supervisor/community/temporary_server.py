"""A temporary server for redeeming an invite: on loopback, linked to the inviter's home.

It uses the invite's login and holds nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats.leaf_links import linked
from hearthnet.supervisor.nats.nats_admin import NatsAdmin
from hearthnet.supervisor.nats.nats_process import NAME, NatsProcess, last_words
from hearthnet.supervisor.nats.server_config import BusLogin, GuestSettings, render_guest
from hearthnet.supervisor.nats.upstream import Upstream, remote
from hearthnet.supervisor.os.atomic_files import make_folder
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.trust.keys import Identity, Login

LINK_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.05
_REFUSED: Final = "Authorization Violation"


@contextlib.asynccontextmanager
async def temporary_server(folder: Path, invite: Identity, upstream: Upstream) -> AsyncIterator[str]:
    """Run the server in `folder` during the block and yield its address once it is linked.

    Clients log in to it with the key of `invite`. The folder is made private; the caller removes it. Errors
    of `nats_process` are passed through.

    Raises:
        HearthNetError: `unauthorized` if the other home refuses the invite; `partition` if it cannot be
            reached within 10 s.
    """
    make_folder(folder)
    login, system_login = invite.login(), Login(secrets.token_bytes(32))
    log = LogFile(folder / f"{NAME}.log")
    settings = GuestSettings(
        name=f"hearthnet-guest-{secrets.token_hex(8)}",
        ports=folder,
        invite=BusLogin(invite.node_id, login.public),
        system_login=system_login.public,
        remote=remote(upstream, login, folder),
    )
    nats = NatsProcess(log, folder / f"{NAME}.log")
    await nats.start(folder / "server.conf", render_guest(settings), folder)
    try:
        system = await NatsAdmin.connect(nats.url, system_login)
        try:
            await _wait_for_link(system, log, upstream)
            try:
                yield nats.url
            except HearthNetError as error:
                # A refused link seems established for a moment.
                if error.code == "partition" and _REFUSED in log.tail():
                    raise _refused(upstream) from error
                raise
        finally:
            await system.close()
    finally:
        await nats.stop(_STOP_SECONDS)


async def _wait_for_link(system: NatsAdmin, log: LogFile, upstream: Upstream) -> None:
    end = time.monotonic() + LINK_SECONDS
    while not await linked(system):
        if _REFUSED in log.tail():
            raise _refused(upstream)
        if time.monotonic() >= end:
            raise HearthNetError(
                "partition",
                f"the home at {upstream.address} cannot be reached ({last_words(log)}); is its node "
                "running, and its port open to this computer?",
                details={"rule": "no_home"},
            )
        await asyncio.sleep(_POLL_SECONDS)


def _refused(upstream: Upstream) -> HearthNetError:
    return HearthNetError(
        "unauthorized",
        f"the home at {upstream.address} does not accept this invite: it was used, withdrawn or has expired; "
        "ask for a new one",
    )
