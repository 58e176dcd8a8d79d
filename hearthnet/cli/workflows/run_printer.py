"""A run on the terminal: tool calls as they happen, the answer as it comes, the sources."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from hearthnet.agent.loop.happened import HAPPENED
from hearthnet.cli.output import terminal
from hearthnet.cli.output.citations import Passage, is_search, passages, sources
from hearthnet.cli.output.text import as_json, counted, duration, many_lines, one_line, shorten, size
from hearthnet.cli.workflows.question_plan import Plan
from hearthnet.core import ids

_RESULT_WIDTH: Final = 200
_AGAIN_WIDTH: Final = 100
_TOOLS_IGNORED: Final = "tools_ignored"
_EXCERPT: Final = 400
"""Characters of each passage after the first, which is shown whole."""
_PROSE_WIDTH: Final = 100
_TITLE: Final = "Happened, by signed records"
_IMITATED: Final = "  (what stands further up under such a title are words of the model)"
_ENDINGS: Final = {
    "max_tokens": "the answer is cut off: the model reached its limit of tokens",
    "cancelled": "cancelled",
    "refusal": "the model refused to answer",
}

UNKNOWN: Final[list[dict[str, Any]]] = [{"state": "unknown"}]
"""What happened in a run that has words and no list: nobody here knows."""


class Show:
    """Prints one run, with all foreign text escaped."""

    def __init__(self, plan: Plan, calls: Mapping[str, tuple[str, Any]] | None = None) -> None:
        """Create the display; `calls` has name and arguments of calls shown earlier, by id."""
        self._plan = plan
        self._text_open = False
        self._waiting = self._passing = False
        self._found: list[Passage] = []
        self._calls = dict(calls or {})
        self._happened: list[dict[str, Any]] = []
        self._under = ""
        self._words = ""
        """The end of the model's text, long enough for the title of the list."""
        self._is_imitated = False

    def opening(self) -> None:
        """Print the advice about the model before its answer."""
        if advice := self._plan.model.advice:
            terminal.line(terminal.styled(one_line(advice), "yellow"))

    def frame(self, event: str, data: dict[str, Any]) -> None:
        """Print one frame of the run; the model's progress is shown until its first output."""
        if event == "progress":
            self._progress(data)
            return
        self._wipe()
        self._waiting = event == "iteration" or (self._waiting and event == "notice")
        match event:
            case "token":
                self._token(str(data["text"]))
            case "tool_call":
                self._calls[str(data["id"])] = data["name"], data["arguments"]
                self._under = str(data["id"])
                self._note(f"tool {one_line(str(data['name']))} {as_json(data['arguments'])}")
            case "tool_started":
                self._calls[str(data["tool_call_id"])] = data["name"], data["arguments"]
            case "tool_progress":
                self._head(data)
                self._note(
                    f"  {one_line(str(data.get('stage', '')))} {data.get('current')}/{data.get('total')}"
                )
            case "tool_result":
                self._head(data)
                self._result(data)
            case "notice" if not self._is_known_already(data):
                self._note(f"note: {one_line(str(data.get('text', '')))}")
            case "done" | "suspended":
                self._end(event, data)

    def ending(self) -> None:
        """Print the sources of the passages, each document once, and what happened.

        Where the model wrote and no list came, the end is unknown: its text may look like one.
        """
        self._wipe()
        self._close_text()
        documents = sources(self._found)
        if documents:
            terminal.line()
            terminal.line(terminal.styled("Sources", "bold"))
        for number, document in enumerate(documents, start=1):
            dated = f" ({one_line(document.date)})" if document.date else ""
            terminal.line(f"[{number}] {one_line(document.title)}{dated}")
            for source in document.sources:
                terminal.line(f"    {one_line(source)}")
        happened = self._happened or (UNKNOWN if self._words else [])
        if happened:
            terminal.line()
            terminal.line(terminal.styled(_TITLE, "bold"))
        for effect in happened:
            terminal.line(f"  {_effect(effect)}")
        if self._is_imitated:
            terminal.line(_IMITATED)

    def _progress(self, data: dict[str, Any]) -> None:
        current, total = data.get("current"), data.get("total")
        if not self._waiting or not isinstance(current, int) or not isinstance(total, int) or total <= 0:
            return
        self._close_text()
        stage = one_line(str(data.get("stage", "")))
        self._passing = terminal.status_line(f"{stage} {min(100, 100 * current // total)} %")

    def _wipe(self) -> None:
        if self._passing:
            terminal.clear_status()
            self._passing = False

    def _token(self, text: str) -> None:
        terminal.write(many_lines(text))
        seen = self._words + text
        self._is_imitated = self._is_imitated or _TITLE.casefold() in seen.casefold()
        self._words = seen[-len(_TITLE) :]
        self._under = ""
        self._text_open = not text.endswith("\n") if text else self._text_open

    def _head(self, data: dict[str, Any]) -> None:
        """Print the call that the next line is about, if other output came in between."""
        call = str(data.get("tool_call_id", ""))
        if call != self._under and call in self._calls:
            name, arguments = self._calls[call]
            self._note(shorten(f"tool {one_line(str(name))} {as_json(arguments)}", _AGAIN_WIDTH))
            self._under = call

    def _result(self, data: dict[str, Any]) -> None:
        took = f"{duration(data['ms'])}, {size(data['bytes'])}"
        if data["is_error"]:
            self._note(f"  {data['status']} ({took}): {one_line(str(data['content']))}")
            return
        found = passages(data["content"])
        if not found and is_search(data["content"]):
            self._note(
                f"  {data['status']} ({took}): 0 passages; what follows does not come from the documents"
            )
            return
        if not found:
            self._note(f"  {data['status']} ({took}): {shorten(as_json(data['content']), _RESULT_WIDTH)}")
            return
        self._note(f"  {data['status']} ({took}): {counted(len(found), 'passage')}")
        self._found += found
        if self._plan.model.advice:
            self._passages(found)

    def _passages(self, found: list[Passage]) -> None:
        """Print the passages themselves, for a model that is not reliable."""
        for number, passage in enumerate(found):
            heading = f": {one_line(passage.heading)}" if passage.heading else ""
            terminal.line()
            terminal.line(terminal.styled(f"  {one_line(passage.title)}{heading}", "bold"))
            text = passage.words if number == 0 else shorten(passage.words, _EXCERPT)
            for line in many_lines(text).splitlines():
                terminal.line(textwrap.fill(line, _PROSE_WIDTH, initial_indent="  ", subsequent_indent="  "))
        terminal.line()
        sys.stdout.flush()

    def failed(self, error: dict[str, Any]) -> None:
        """Take what happened before the model failed; another one may still answer.

        That it is nothing is left out where the model wrote nothing either.
        """
        listed = error["details"][HAPPENED]
        self._happened = [one for one in listed if self._words or one["state"] != "nothing"]

    def _end(self, event: str, data: dict[str, Any]) -> None:
        self._happened = data.get(HAPPENED, [])
        if event == "done":
            self._done(data)

    def _done(self, data: dict[str, Any]) -> None:
        self._close_text()
        ending = _ENDINGS.get(data["stop_reason"])
        if ending is not None:
            self._note(f"({ending})")
        if data.get("limit"):
            self._note(f"(no further tools: the limit {one_line(str(data['limit']))} was reached)")

    def _is_known_already(self, notice: dict[str, Any]) -> bool:
        """Return whether a notice repeats the advice about the model.

        That is so for a model that takes no tools after the demanded one.
        """
        return notice.get("code") == _TOOLS_IGNORED and self._plan.model.by_name_only

    def _note(self, text: str) -> None:
        self._close_text()
        terminal.write(terminal.styled(text, "dim") + "\n")

    def _close_text(self) -> None:
        if self._text_open:
            terminal.line()
            self._text_open = False


def _effect(effect: dict[str, Any]) -> str:
    """Return one line of what happened; only names that this node has checked are in it."""
    where = f" at {ids.short_id(effect['home'])}" if effect.get("home") else ""
    entry = f" (call {effect['entry']})" if effect.get("entry") else ""
    name = one_line(str(effect.get("capability") or effect.get("name", "")))
    return f"{effect['state']}: {name}{where}{entry}" if name else str(effect["state"])
