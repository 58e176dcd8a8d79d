"""Where the processes that are killed come from: `python -m tests.chaos.nursery`, which imported everything.

A line on its standard input is an order; each is carried out by a process of its own, forked here. All of
them end with whoever holds the other end of the pipe that HEARTHNET_LIFELINE_FD names.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

import msgspec

from hearthnet.bus.calls import attempt
from hearthnet.contracts.registry import contracts
from hearthnet.core.capability_name import split_name
from hearthnet.nats import client, jetstream_client
from hearthnet.service.hosting.status import LIFELINE_VARIABLE
from tests.chaos.plan import Plan


class Order(msgspec.Struct, frozen=True):
    """What a process is to be. `run` is the saved run that it takes up, `sabotage` what is broken in it."""

    role: str
    home: str
    url: str
    socket: str
    token: int
    sabotage: str = ""
    plan: Plan | None = None
    run: str = ""


def _roles() -> dict[str, Callable[[Order], None]]:
    from tests.chaos import executor_worker, market_worker

    return {"executor": executor_worker.work, "provider": market_worker.work}


def _hurry() -> None:
    """The same things sooner: who died is looked for, and a server that is back is found, without a pause."""
    attempt.PROBE_SECONDS = 0.4  # type: ignore[misc]
    client.RECONNECT_SECONDS = 0.1  # type: ignore[misc]
    jetstream_client.RECONNECT_SECONDS = 0.1  # type: ignore[misc,assignment]


def _end_with(lifeline: int) -> None:
    while os.read(lifeline, 64):
        pass
    os._exit(1)


def _live(order: Order, work: Callable[[Order], None], lifeline: int) -> None:
    """The life of a forked process."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        work(order)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Carries out orders until there are no more."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    lifeline, roles, decoder = int(os.environ[LIFELINE_VARIABLE]), _roles(), msgspec.json.Decoder(Order)
    for name in ("market.post@1.0", "market.list@1.0", "market.search@1.0", "llm.chat@2.0"):
        contracts().find(*split_name(name))
    _hurry()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who died
    with os.fdopen(os.dup(0), "rb", buffering=0) as orders:
        rest = b""
        while data := orders.read(65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                order = decoder.decode(line)
                if os.fork() == 0:
                    _live(order, roles[order.role], lifeline)


if __name__ == "__main__":
    main()
