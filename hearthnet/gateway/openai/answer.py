"""Frames of models and runs in the form of OpenAI's API: as deltas, and as one message.

Calls of client tools are sent whole, one delta each: part of a call is of no use.

That protocol has no runs. A call of a client tool carries its run in its id, which comes back with the
result. A notice of a call that waits for a person is plain text, whose last line names the run; it comes
back in the history that the client sends.
"""

from __future__ import annotations

import re
from typing import Any, Final

from hearthnet.agent.loop.happened import HAPPENED
from hearthnet.agent.tools.result_text import json_text
from hearthnet.core.ids import is_ulid

_CALL: Final = re.compile(r"run_(?P<run>[0-9A-Z]{26})_(?P<call>.+)", re.DOTALL)
_LAST_LINE: Final = re.compile(r"\[hearthnet run (?P<run>[0-9A-Z]{26})\]\s*\Z")
_LONGEST: Final = 2000


def call_id_for(run: str, tool_call_id: str) -> str:
    """Return the id of a client tool's call for the client."""
    return f"run_{run}_{tool_call_id}"


def run_and_call(call_id: str) -> tuple[str, str] | None:
    """Return the run and the call of `call_id`; None for an id that was not made here."""
    found = _CALL.fullmatch(call_id)
    return (found["run"], found["call"]) if found is not None and is_ulid(found["run"]) else None


def run_named_in(text: str) -> str:
    """Return the run that a message names in its last line, empty where it names none."""
    found = _LAST_LINE.search(text)
    return found["run"] if found is not None and is_ulid(found["run"]) else ""


def notice_of(suspended: dict[str, Any]) -> str:
    """Return the notice for a person that a run waits for approval, with the ways to give it."""
    run = suspended["run"]
    lines = ["This needs your approval. Nothing of it has been done yet:"]
    for one in suspended["pending"]:
        lines += ["", f"- {one['name']} would send {_abbreviated(one['body'])}"]
        if one.get("problem"):
            lines.append(f"  ({one['problem']})")
        lines.append(f"  approve: hearthnet runs approve {run} {one['tool_call_id']}")
        lines.append(f"  refuse:  hearthnet runs deny {run} {one['tool_call_id']}")
    lines += [
        "",
        "Or decide on this node's page. Then send any message, and I go on.",
        f"[hearthnet run {run}]",
    ]
    return "\n".join(lines)


def _abbreviated(body: dict[str, Any]) -> str:
    text = json_text(body)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... (the page shows all of it)"


Delta = dict[str, Any]
_FINISHED: Final = {
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "refusal": "content_filter",
}
_BREAK: Final = "\n\n"


class OpenAIAnswer:
    """One answer as it grows: feed it each frame and send the deltas that it returns.

    `of_run`: the frames are those of a run, in which `tool_call` is internal and `tool_wanted` is for the
    client. `texts` are the client's tools that take one text.
    """

    def __init__(self, *, of_run: bool, texts: frozenset[str] = frozenset()) -> None:
        self._calls_from = "tool_wanted" if of_run else "tool_call"
        self._of_run = of_run
        self._texts = texts
        self._apart = False
        self.text = ""
        self.thoughts = ""
        self.calls: list[dict[str, Any]] = []
        self.done: dict[str, Any] = {}
        self.waits: dict[str, Any] | None = None

    def feed(self, event: str, data: dict[str, Any]) -> list[Delta]:
        """Return the deltas for one frame: mostly one, often none."""
        if event == "token":
            return self._text_delta(data["text"])
        if event == "thinking":
            self.thoughts += data["text"]
            return [{"reasoning_content": data["text"]}]
        if event == self._calls_from:
            return [self._call(data)]
        if event == "iteration":
            self._apart = bool(self.text)
        elif event == "done":
            self.done = data
        elif event == "suspended":
            return self._wait(data)
        return []

    def _text_delta(self, text: str) -> list[Delta]:
        """Add text; the text of a new model turn begins a new paragraph."""
        if self._apart and text:
            text, self._apart = _BREAK + text, False
        self.text += text
        return [{"content": text}] if text else []

    def _call(self, data: dict[str, Any]) -> Delta:
        call_id = call_id_for(data["run"], data["tool_call_id"]) if self._of_run else data["id"]
        name, arguments = data["name"], data["arguments"]
        call: dict[str, Any] = {"id": call_id}
        if name in self._texts:
            call |= {"type": "custom", "custom": {"name": name, "input": arguments.get("input", "")}}
        else:
            call |= {"type": "function", "function": {"name": name, "arguments": json_text(arguments)}}
        self.calls.append(call)
        return {"tool_calls": [{"index": len(self.calls) - 1, **call}]}

    def _wait(self, data: dict[str, Any]) -> list[Delta]:
        """Add the calls that the client must run and, where a person must decide, a notice."""
        self.waits = data
        handed = {call["id"] for call in self.calls}
        again = [one for one in data["wanted"] if call_id_for(one["run"], one["tool_call_id"]) not in handed]
        deltas = [self._call(one) for one in again]
        self._apart = bool(self.text)
        return (self._text_delta(notice_of(data)) if data["pending"] else []) + deltas

    @property
    def finish_reason(self) -> str:
        """The reason for the end, in OpenAI's terms."""
        if self.calls:
            return "tool_calls"
        return _FINISHED.get(str(self.done.get("stop_reason")), "stop")

    @property
    def usage(self) -> dict[str, Any]:
        """The tokens used in all turns."""
        read, said = int(self.done.get("tokens_in", 0)), int(self.done.get("tokens_out", 0))
        return {
            "prompt_tokens": read,
            "completion_tokens": said,
            "total_tokens": read + said,
            "prompt_tokens_details": {"cached_tokens": int(self.done.get("tokens_cached", 0))},
            "completion_tokens_details": {"reasoning_tokens": int(self.done.get("tokens_thinking", 0))},
        }

    @property
    def message(self) -> dict[str, Any]:
        """The whole message of the assistant."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None, "refusal": None}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        if self.calls:
            message["tool_calls"] = self.calls
        elif self.text == "":
            message["content"] = ""
        return message


class Form:
    """The outer form of one answer: its id, its time (Unix s), its model."""

    def __init__(self, completion_id: str, created: int, model: str) -> None:
        self._head = {"id": completion_id, "created": created, "model": model}

    def chunk(self, delta: Delta, finish_reason: str | None = None) -> dict[str, Any]:
        """Return a piece of a streamed answer."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def event(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Return a chunk that carries a frame of the run and nothing else."""
        return {**self.chunk({}), "hearthnet": frame}

    def usage(self, answer: OpenAIAnswer) -> dict[str, Any]:
        """Return the last piece, with the usage."""
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": answer.usage}

    def last(self, answer: OpenAIAnswer) -> dict[str, Any]:
        """Return the piece with the reason for the end, the open calls and what happened."""
        return {**self.chunk({}, answer.finish_reason), **_waits(answer)}

    def whole(self, answer: OpenAIAnswer) -> dict[str, Any]:
        """Return the answer in one piece."""
        choice = {
            "index": 0,
            "message": answer.message,
            "logprobs": None,
            "finish_reason": answer.finish_reason,
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": answer.usage,
            **_waits(answer),
        }


def _waits(answer: OpenAIAnswer) -> dict[str, Any]:
    """Return the extension of an answer: the open calls of a run that waits, and what happened."""
    found = answer.waits or {name: answer.done[name] for name in (HAPPENED,) if name in answer.done}
    return {"hearthnet": found} if found else {}
