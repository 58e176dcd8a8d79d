"""What a service process tells its supervisor: JSON lines on an inherited descriptor."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import Any, Final

import msgspec

STATUS_VARIABLE: Final = "HEARTHNET_STATUS_FD"
LIFELINE_VARIABLE: Final = "HEARTHNET_LIFELINE_FD"
_log = logging.getLogger(__name__)


def hold_lifeline() -> None:
    """Ends this process at once when its supervisor is gone: the other end of the pipe closes with it."""
    number = os.environ.pop(LIFELINE_VARIABLE, "")
    if number.isdigit():
        threading.Thread(target=_watch, args=(int(number),), name="lifeline", daemon=True).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 64):
        pass
    os._exit(1)


class Status:
    """Writes states to `descriptor`; without one, to the log."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def inherited(cls) -> Status:
        """The status of this process, as its supervisor passed it on."""
        number = os.environ.pop(STATUS_VARIABLE, "")
        return cls(int(number) if number.isdigit() else None)

    def starting(self, stage: str, current: int, total: int) -> None:
        """How far the start is."""
        self._write({"state": "starting", "stage": stage, "current": current, "total": total})

    def ready(self, offers: list[str], note: str | None, address: str = "") -> None:
        """Ready, with one line an offer; said again whenever they change. `address` is a URL for people."""
        self._write({"state": "ready", "offers": offers, "note": note, "address": address})

    def failed(self, note: str) -> None:
        """The start failed, in one line."""
        self._write({"state": "failed", "note": note})

    def _write(self, state: dict[str, Any]) -> None:
        _log.info("%s", state)
        if self._descriptor is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._descriptor, msgspec.json.encode(state) + b"\n")
