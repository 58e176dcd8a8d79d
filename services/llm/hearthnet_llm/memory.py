"""What was learned of models by asking them, kept in a file over restarts: whether they call tools."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from hearthnet.config import ModelConfig
from hearthnet_llm.kinds import root


class Memory:
    """Losing it costs a question, so a file that cannot be read or written is passed over."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tools: dict[str, bool] = {}
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self._tools = msgspec.json.decode(file.read_bytes(), type=dict[str, bool])

    def tools(self, config: ModelConfig) -> bool | None:
        """Whether the model calls tools; None where it was not asked yet."""
        return self._tools.get(_key(config))

    def keep(self, config: ModelConfig, tools: bool) -> None:
        """Remembers whether the model calls tools."""
        if self._tools.get(_key(config)) == tools:
            return
        self._tools[_key(config)] = tools
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_bytes(msgspec.json.encode(self._tools))


def _key(config: ModelConfig) -> str:
    return f"{config.kind} {root(config)} {config.model}"
