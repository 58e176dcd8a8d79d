"""Tool abilities learned by testing models, kept in a file over restarts."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from hearthnet.core import ModelConfig
from hearthnet_llm.backends.backend_kinds import root


class ProbeCache:
    """The learned abilities.

    Losing them costs one test for each model, so a file that cannot be read or written is ignored.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tools: dict[str, bool] = {}
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self._tools = msgspec.json.decode(file.read_bytes(), type=dict[str, bool])

    def tools(self, config: ModelConfig) -> bool | None:
        """Return whether the model calls tools, or None if it was not tested yet."""
        return self._tools.get(_key(config))

    def keep(self, config: ModelConfig, tools: bool) -> None:
        """Record whether the model calls tools."""
        if self._tools.get(_key(config)) == tools:
            return
        self._tools[_key(config)] = tools
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_bytes(msgspec.json.encode(self._tools))


def _key(config: ModelConfig) -> str:
    return f"{config.kind} {root(config)} {config.model}"
