"""A language model that says what a test told it to, behind the OpenAI API on loopback.

Real for everything but the thinking: the node's `llm` service speaks to it over HTTP as to any other server.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.helpers.loopback import Loopback

NAME = "scripted"


@dataclass(frozen=True)
class Say:
    """One turn: text, then calls `(tool, arguments)`; arguments that are a text are sent as they are.
    `forever`: it goes on talking until nobody listens. `cut`: it reaches its limit of tokens there, after
    `thinking`. `refuses`: the body of a 400, in place of a turn.
    """

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any] | str], ...] = ()
    forever: bool = False
    thinking: str = ""
    cut: bool = False
    refuses: dict[str, Any] | None = None

    @property
    def finish_reason(self) -> str:
        """Why it ends, in the wire's word."""
        return "length" if self.cut else "tool_calls" if self.calls else "stop"


@dataclass
class ScriptedModel(Loopback):
    """Answers each question with the turns that were written for it, one a request. A context manager."""

    turns: dict[str, list[Say]] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    readied: list[dict[str, Any]] = field(default_factory=list)
    """What it was to read before there was a question."""
    traceparents: list[str] = field(default_factory=list)
    """Of the requests for an answer, empty where one had none."""
    busy: bool = False
    """It lists its models, and answers with 503 where one of them is asked."""
    hangs_up: bool = False
    """It lists its models, and ends the connection where one of them is asked."""
    go: threading.Event = field(default_factory=threading.Event)
    """It answers, or hangs up, once this is set; it is from the start."""
    stopped_at: float = 0.0
    """When, on the monotonic clock, somebody stopped listening to a turn without end."""

    def __post_init__(self) -> None:
        self.go.set()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """Speaks OpenAI's wire."""
        return _Handler

    @property
    def config(self) -> str:
        """What stands in a node's settings to connect it."""
        return f'[[llm.models]]\nkind = "openai"\nname = "{NAME}"\nurl = "{self.url}"\nmodel = "{NAME}"\n'

    @property
    def url(self) -> str:
        """The base of its API."""
        return f"http://127.0.0.1:{self.port}/v1"

    def turn(self, request: dict[str, Any]) -> Say:
        """The turn that answers a request: by its question, and how often the model has spoken since."""
        messages = request["messages"]
        asked = max(place for place, message in enumerate(messages) if message["role"] == "user")
        if not _text(messages[asked]):
            self.readied.append(request)
            return Say("Ready.")
        self.requests.append(request)
        spoken = sum(message["role"] == "assistant" for message in messages[asked:])
        turns = self.turns.get(_text(messages[asked]), [])
        return turns[spoken] if spoken < len(turns) else Say("That is all.")


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class _Handler(BaseHTTPRequestHandler):
    owner: ScriptedModel
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Tests show what matters themselves."""

    def do_GET(self) -> None:
        """The list of models."""
        self._send_json(200, {"object": "list", "data": [{"id": NAME, "object": "model"}]})

    def _send_json(self, status: int, page: dict[str, Any]) -> None:
        body = json.dumps(page).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")  # who is kept waiting on would be served after the end
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def do_POST(self) -> None:
        """A chat completion, streamed."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.owner.traceparents.append(self.headers.get("traceparent", ""))
        self.owner.go.wait()
        if self.owner.hangs_up:
            self.close_connection = True
            return
        if self.owner.busy:
            self._send_json(503, {"error": {"message": "the model is overloaded"}})
            return
        turn = self.owner.turn(request)
        if turn.refuses is not None:
            self._send_json(400, turn.refuses)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self._speak(turn)
        except OSError:
            self.owner.stopped_at = time.monotonic()
        self.close_connection = True

    def _speak(self, turn: Say) -> None:
        if turn.thinking:
            self._chunk({"reasoning_content": turn.thinking})
        for word in turn.text.split(" ") if turn.text else []:
            self._chunk({"content": word + " "})
        while turn.forever:
            self._chunk({"content": "on "})
            time.sleep(0.01)
        for index, (name, arguments) in enumerate(turn.calls):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            function = {"name": name, "arguments": text}
            call = {"index": index, "id": f"call_{name}_{index}", "type": "function", "function": function}
            self._chunk({"tool_calls": [call]})
        usage = {"prompt_tokens": 12, "completion_tokens": 8, "total_tokens": 20}
        self._chunk({}, finish_reason=turn.finish_reason, usage=usage)
        self.wfile.write(b"data: [DONE]\n\n")
        self.wfile.flush()

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None, **extra: Any) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        chunk = {"id": "c", "object": "chat.completion.chunk", "model": NAME, "choices": [choice], **extra}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()
