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
    from hearthnet.core.config_follower import ConfigFollower
    from hearthnet.core.errors import CONTEXT_LENGTH
    from hearthnet.core.errors import first_of as first_error
    from hearthnet.core.ids import b64, new_ulid, short_id, unb64
    from hearthnet.core.node_state import read_node_state
    from hearthnet.core.process_lock import living as living_processes
    from hearthnet.core.tasks import TaskSet
    from hearthnet.core.times import from_rfc3339, least_ms, now_ms, rfc3339
else:
    __getattr__ = lazy(
        __name__,
        {
            "hearthnet.core.canonical_json": "content_hash derived_id",
            "hearthnet.core.capability_name": "Capability parse_capability",
            "hearthnet.core.config": (
                "EmbedModelConfig FileConfig LlmConfig McpConfig McpServerConfig "
                "ModelConfig ModelKind ScriptedConfig"
            ),
            "hearthnet.core.config_follower": "ConfigFollower",
            "hearthnet.core.errors": "CONTEXT_LENGTH first_error=first_of",
            "hearthnet.core.ids": "b64 new_ulid short_id unb64",
            "hearthnet.core.node_state": "read_node_state",
            "hearthnet.core.process_lock": "living_processes=living",
            "hearthnet.core.tasks": "TaskSet",
            "hearthnet.core.times": "from_rfc3339 least_ms now_ms rfc3339",
        },
    )

__all__ = [
    "CONTEXT_LENGTH",
    "Capability",
    "ConfigFollower",
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
    "first_error",
    "from_rfc3339",
    "least_ms",
    "living_processes",
    "new_ulid",
    "now_ms",
    "parse_capability",
    "read_node_state",
    "rfc3339",
    "short_id",
    "unb64",
]
