"""A model's server that a test writes itself: JSON per path, gone and back on the same port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

TOKEN = {"choices": [{"delta": {"content": "Hi"}}]}
DONE = {
    "choices": [{"delta": {}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}
Answer = tuple[int, str, bytes]
Route = Callable[[dict[str, Any]], Awaitable[Answer]]


def events(*values: dict[str, Any]) -> Answer:
    """A stream of server-sent events."""
    return (
        200,
        "text/event-stream",
        b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values),
    )


def saying(text: str = "Hi") -> Answer:
    """An answer in words."""
    return events({"choices": [{"delta": {"content": text}}]}, DONE)


def calling(name: str, arguments: dict[str, Any]) -> Answer:
    """An answer that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    return events({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})


def page(value: Any, status: int = 200) -> Answer:
    """JSON."""
    return status, "application/json", json.dumps(value).encode()


HTML: Answer = (200, "text/html", b"<html>Log in</html>")


class ModelServer:
    """An async context manager. `routes` are answers by path, or functions of the request's JSON.

    What is not there is a 404. `asked` holds method, path, headers and JSON of every request.
    """

    def __init__(self, **models: dict[str, Any]) -> None:
        listed = [{"id": name, **fields} for name, fields in models.items()]
        self.routes: dict[str, Answer | Route] = {
            "/v1/models": page({"object": "list", "data": listed}),
            "/v1/chat/completions": saying(),
        }
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self._port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def host(self) -> str:
        """Where it is."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The base of the OpenAI API."""
        return f"http://{self.host}/v1"

    def config(self, name: str = "far", model: str = "far-1", **fields: Any) -> str:
        """What stands in a node's settings to connect a model of it."""
        lines = {"kind": "openai", "name": name, "url": self.url, "model": model, **fields}
        return "\n[[llm.models]]\n" + "".join(
            f"{key} = {json.dumps(value)}\n" for key, value in lines.items()
        )

    def posts(self) -> int:
        """How often something was asked of a model."""
        return sum(method == "POST" for method, *_ in self.asked)

    async def start(self) -> None:
        """Listens, where it did before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Hangs up on everyone, and listens no more."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = lines[0].split(" ")
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        said = json.loads(body) if body else None
        self.asked.append((method, path, headers, said))
        route = self.routes.get(path.partition("?")[0], page({"error": "no such page"}, 404))
        status, kind, data = route if isinstance(route, tuple) else await route(said or {})
        writer.write(
            f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode() + data
        )
        await writer.drain()
