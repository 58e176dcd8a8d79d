"""An MCP server without a library, of the time before 2026, that can be as wrong as a test wants.

Its argument is a folder: `tools.json` there is what it lists, read anew at each question; the file `hold`
keeps it from answering to `initialize`. `echo` answers its arguments; other calls get what stands in
`answers.json` under the tool's name, or no answer at all, and before it the progress in `progress.json`. What
it is told is appended to `heard.jsonl`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])


def read(name: str, default: Any) -> Any:
    path = FOLDER / name
    return json.loads(path.read_text()) if path.exists() else default


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        while (FOLDER / "hold").exists():
            time.sleep(0.01)
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "plain", "version": "1"}
        return {"result": {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": read("tools.json", [])}}
    if method == "tools/call":
        for step in read("progress.json", {}).get(params["name"], []):
            told = {"progressToken": params["_meta"]["progressToken"], **step}
            say({"method": "notifications/progress", "params": told})
        if params["name"] == "echo":
            text = json.dumps(params.get("arguments"))
            return {"result": {"content": [{"type": "text", "text": text}]}}
        if params["name"] == "exit":
            sys.exit(0)
        found: dict[str, Any] | None = read("answers.json", {}).get(params["name"])
        return found
    return {"error": {"code": -32601, "message": f"no {method} here"}}


def main() -> None:
    print("plain: started", file=sys.stderr, flush=True)  # noqa: T201
    for line in sys.stdin:
        message = json.loads(line)
        with (FOLDER / "heard.jsonl").open("a") as heard:
            heard.write(line)
        if "id" in message:
            replied = answer(message["method"], message.get("params") or {})
            if replied is not None:
                say({"id": message["id"], **replied})
            if message["method"] == "tools/call" and message["params"]["name"] == "echo":
                say({"method": "notifications/tools/list_changed"})


if __name__ == "__main__":
    main()
