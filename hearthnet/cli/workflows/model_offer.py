"""The model in an offer of `llm.chat`, as the commands use it."""

from __future__ import annotations

from typing import Any


class ModelOffer:
    """The params of one offer; missing or malformed ones have default values."""

    def __init__(self, params: dict[str, Any]) -> None:
        self._params = params

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._text("model")

    @property
    def names(self) -> list[str]:
        """All names of the model."""
        return [self.name, *self._texts("models")]

    @property
    def backend(self) -> str:
        """The program that runs it."""
        return self._text("backend") or "-"

    @property
    def context(self) -> int:
        """The context length in tokens."""
        value = self._params.get("ctx")
        return value if isinstance(value, int) else 0

    @property
    def languages(self) -> list[str]:
        """The languages in its profile."""
        return self._texts("languages")

    @property
    def tools(self) -> str:
        """The way in which it calls tools: `yes`, `by name` if one must be demanded, or `no`."""
        if not self._params.get("tools_supported"):
            return "no"
        return "by name" if self.by_name_only else "yes"

    @property
    def tools_shown(self) -> str:
        """The same for a person; `in text` if it writes its calls in its text."""
        return "in text" if self.tools == "yes" and self._text("tool_mode") == "text" else self.tools

    @property
    def by_name_only(self) -> bool:
        """Return whether a tool must be demanded by name, because the model cannot choose."""
        return self._params.get("tools_by_name_only") is True

    @property
    def advice(self) -> str:
        """One line that a person should read before relying on it."""
        return self._text("advice")

    def _text(self, name: str) -> str:
        value = self._params.get(name)
        return value if isinstance(value, str) else ""

    def _texts(self, name: str) -> list[str]:
        value = self._params.get(name)
        return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
