"""The market's process, which ends itself as SIGKILL ends it, at one step of the first change that it makes:

python -m tests.services.market.dying HOME STEP
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from hearthnet.core.home import Home
from hearthnet.service.effects import jetstream_records
from hearthnet.service.effects.event_log import EventLog
from hearthnet.service.hosting.main import serve
from hearthnet.service.hosting.status import Status
from hearthnet_market import projection, read_model
from hearthnet_market.service import STREAM, MarketService
from tests.chaos.hooks import around, replace

UNDONE: Final = "before the append"
DONE: Final = ("after the append", "while the view takes it in", "when the view has it")
ERASING: Final = ("before the erasing", "when the log has erased it")


def _die(*_args: Any, **_named: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still there")


def _in_the_log(*args: Any, **_named: Any) -> None:
    if args[1] == STREAM:
        _die()


def _while_changing(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Ends the process in the view's transaction, when the tables are changed and nothing is committed."""

    def outer(*args: Any) -> Any:
        inner(*args)
        _die()

    return outer


def _prepare(step: str) -> None:
    if step == UNDONE:
        around(jetstream_records, "write", _in_the_log, None)
    elif step == DONE[0]:
        around(jetstream_records, "write", None, _in_the_log)
    elif step == DONE[1]:
        replace(read_model, "take", _while_changing(projection.take))
    elif step == DONE[2]:
        around(read_model.View, "apply", None, _die)
    elif step == ERASING[0]:
        around(EventLog, "erase", _die, None)
    elif step == ERASING[1]:
        around(EventLog, "erase", None, _die)
    else:
        raise ValueError(step)


if __name__ == "__main__":
    _prepare(sys.argv[2])
    asyncio.run(serve(MarketService(), Home(Path(sys.argv[1])), Status(None), asyncio.Event()))
