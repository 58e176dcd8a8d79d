"""Errors, ids, time, settings and small algorithms that every other package uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.core.canonical_json import content_hash, derived_id
    from hearthnet.core.capability_name import Capability, parse_capability
    from hearthnet.core.config import (
        EmbedModelConfig,
        FileConfig,
        LlmConfig,
        McpConfig,
        McpServerConfig,
        ModelConfig,
        ModelKind,
        ScriptedConfig,
    )
    from hearthnet.core.config_loader import load_config
    from hearthnet.core.errors import CONTEXT_LENGTH
    from hearthnet.core.errors import first_of as first_error
    from hearthnet.core.home import ROOM_BYTES
    from hearthnet.core.ids import b64, new_ulid, short_id, unb64
    from hearthnet.core.node_state import read_node_state
    from hearthnet.core.process_lock import living as living_processes
    from hearthnet.core.tasks import TaskSet
    from hearthnet.core.tasks import end as end_task
    from hearthnet.core.times import from_rfc3339, now_ms, rfc3339
else:
    __getattr__ = lazy(
        __name__,
        {
            "CONTEXT_LENGTH": "hearthnet.core.errors",
            "Capability": "hearthnet.core.capability_name",
            "EmbedModelConfig": "hearthnet.core.config",
            "FileConfig": "hearthnet.core.config",
            "LlmConfig": "hearthnet.core.config",
            "McpConfig": "hearthnet.core.config",
            "McpServerConfig": "hearthnet.core.config",
            "ModelConfig": "hearthnet.core.config",
            "ModelKind": "hearthnet.core.config",
            "ROOM_BYTES": "hearthnet.core.home",
            "ScriptedConfig": "hearthnet.core.config",
            "TaskSet": "hearthnet.core.tasks",
            "b64": "hearthnet.core.ids",
            "content_hash": "hearthnet.core.canonical_json",
            "derived_id": "hearthnet.core.canonical_json",
            "end_task": "hearthnet.core.tasks:end",
            "first_error": "hearthnet.core.errors:first_of",
            "from_rfc3339": "hearthnet.core.times",
            "living_processes": "hearthnet.core.process_lock:living",
            "load_config": "hearthnet.core.config_loader",
            "new_ulid": "hearthnet.core.ids",
            "now_ms": "hearthnet.core.times",
            "parse_capability": "hearthnet.core.capability_name",
            "read_node_state": "hearthnet.core.node_state",
            "rfc3339": "hearthnet.core.times",
            "short_id": "hearthnet.core.ids",
            "unb64": "hearthnet.core.ids",
        },
    )

__all__ = [
    "CONTEXT_LENGTH",
    "ROOM_BYTES",
    "Capability",
    "EmbedModelConfig",
    "FileConfig",
    "LlmConfig",
    "McpConfig",
    "McpServerConfig",
    "ModelConfig",
    "ModelKind",
    "ScriptedConfig",
    "TaskSet",
    "b64",
    "content_hash",
    "derived_id",
    "end_task",
    "first_error",
    "from_rfc3339",
    "living_processes",
    "load_config",
    "new_ulid",
    "now_ms",
    "parse_capability",
    "read_node_state",
    "rfc3339",
    "short_id",
    "unb64",
]
