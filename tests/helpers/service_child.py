"""The process of one service as its supervisor starts it, without the supervisor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment
from tests.helpers.waiting import wait_for_sync


class Child:
    """A service process with its two pipes."""

    def __init__(self, mesh: Mesh, name: str) -> None:
        self.status, status_end = os.pipe()
        lifeline_end, self.lifeline = os.pipe()
        command = [
            sys.executable,
            "-m",
            "hearthnet.service.hosting.main",
            name,
            "--home",
            str(mesh.home.path),
        ]
        environment = child_environment(
            HEARTHNET_STATUS_FD=str(status_end), HEARTHNET_LIFELINE_FD=str(lifeline_end)
        )
        self.process = subprocess.Popen(
            command, pass_fds=(status_end, lifeline_end), env=environment, stderr=subprocess.DEVNULL
        )
        os.close(status_end)
        os.close(lifeline_end)
        os.set_blocking(self.status, False)
        self._heard = b""

    def said(self) -> list[dict[str, Any]]:
        """Every line so far."""
        try:
            while more := os.read(self.status, 65536):
                self._heard += more
        except BlockingIOError:
            pass
        return [json.loads(line) for line in self._heard.splitlines()]

    def wait_for(self, state: str) -> dict[str, Any]:
        """The first line with `state`."""
        return wait_for_sync(
            lambda: next((line for line in self.said() if line["state"] == state), None), 20, state
        )

    def close(self) -> None:
        """Ends it, and the pipes."""
        self.process.kill()
        self.process.wait()
        os.close(self.status)
        os.close(self.lifeline)
