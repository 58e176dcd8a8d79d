"""What an offer of `llm.chat` says of its model, in the words of the commands."""

from __future__ import annotations

from typing import Any


class ModelOffer:
    """The params of one offer; what a stranger left out or got wrong counts as not said."""

    def __init__(self, params: dict[str, Any]) -> None:
        self._params = params

    @property
    def name(self) -> str:
        """What it is called."""
        return self._text("model")

    @property
    def names(self) -> list[str]:
        """All names that it answers to."""
        return [self.name, *self._texts("models")]

    @property
    def backend(self) -> str:
        """What runs it."""
        return self._text("backend") or "-"

    @property
    def context(self) -> int:
        """Tokens of context."""
        value = self._params.get("ctx")
        return value if isinstance(value, int) else 0

    @property
    def languages(self) -> list[str]:
        """The languages its profile vouches for."""
        return self._texts("languages")

    @property
    def tools(self) -> str:
        """How it calls tools: `yes`, `by name` where it must be told which, `no`."""
        if not self._params.get("tools_supported"):
            return "no"
        return "by name" if self.by_name_only else "yes"

    @property
    def tools_shown(self) -> str:
        """The same for a person; `in text` where it writes its calls in its text."""
        return "in text" if self.tools == "yes" and self._text("tool_mode") == "text" else self.tools

    @property
    def by_name_only(self) -> bool:
        """Whether a tool must be demanded by name, because the model cannot choose."""
        return self._params.get("tools_by_name_only") is True

    @property
    def advice(self) -> str:
        """One line that a person should read before trusting it."""
        return self._text("advice")

    def _text(self, name: str) -> str:
        value = self._params.get(name)
        return value if isinstance(value, str) else ""

    def _texts(self, name: str) -> list[str]:
        value = self._params.get(name)
        return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
