"""The status of a service process for its supervisor: JSON lines on a descriptor."""

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
    """End this process as soon as its supervisor is gone, which closes the pipe's other end."""
    number = os.environ.pop(LIFELINE_VARIABLE, "")
    if number.isdigit():
        threading.Thread(target=_watch, args=(int(number),), name="lifeline", daemon=True).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 64):
        pass
    os._exit(1)


class Status:
    """A writer of states to `descriptor`, or without one to the log."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def inherited(cls) -> Status:
        """Return the status of this process, on the descriptor passed by its supervisor."""
        number = os.environ.pop(STATUS_VARIABLE, "")
        return cls(int(number) if number.isdigit() else None)

    def starting(self, stage: str, current: int, total: int) -> None:
        """Report the progress of the start."""
        self._write({"state": "starting", "stage": stage, "current": current, "total": total})

    def ready(self, offers: list[str], note: str | None, address: str = "") -> None:
        """Report readiness, with one line per offer; repeated after each change of them.

        `address` is a URL for people.
        """
        self._write({"state": "ready", "offers": offers, "note": note, "address": address})

    def failed(self, note: str) -> None:
        """Report that the service failed, in one line, also to the log."""
        _log.error("%s", note)
        self._write({"state": "failed", "note": note})

    def _write(self, state: dict[str, Any]) -> None:
        _log.info("%s", state)
        if self._descriptor is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._descriptor, msgspec.json.encode(state) + b"\n")
