"""A service that only does what its arguments say, to see what the supervisor makes of it.

silent       says nothing
stage        says in which stage it is before it is ready
stubborn     does not heed SIGTERM
crash        ends with exit code 3 and a last line, before it is ready
fail         says why it cannot start, and ends with exit code 5
chatty       writes a line that is no status, and much into its log
forks        has a child of its own in its process group
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading


def say(**status: object) -> None:
    """One status line."""
    os.write(int(os.environ["HEARTHNET_STATUS_FD"]), json.dumps(status).encode() + b"\n")


def main(*behaviours: str) -> None:
    """Behaves, then waits for SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in behaviours else lambda *_: ended.set())
    if "crash" in behaviours:
        sys.stderr.write("the disk sings\n")
        sys.exit(3)
    if "fail" in behaviours:
        say(state="failed", note="no model file; get one with: hearthnet models install")
        sys.exit(5)
    if "forks" in behaviours:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if "chatty" in behaviours:
        os.write(int(os.environ["HEARTHNET_STATUS_FD"]), b"hello\n")
        sys.stdout.write("line\n" * 100_000)
    if "stage" in behaviours:
        say(state="starting", stage="loading model", current=1, total=2)
    if "silent" not in behaviours:
        say(state="ready", offers=["double.echo@1.0 corpus=system"], note="it works")
    ended.wait()
    sys.stdout.write("drained\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
