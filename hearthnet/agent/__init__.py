"""Parts of tool calls for services: the built-in tools, their names, streams read to their end, runs at
another device of a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.lazy_import import lazy

if TYPE_CHECKING:
    from hearthnet.agent.devices.person_devices import PersonDevices
    from hearthnet.agent.runtime.stream_collector import drain
    from hearthnet.agent.tools.builtin import builtin_tools
    from hearthnet.agent.tools.names import placeholder as placeholder_name
else:
    __getattr__ = lazy(
        __name__,
        {
            "hearthnet.agent.devices.person_devices": "PersonDevices",
            "hearthnet.agent.runtime.stream_collector": "drain",
            "hearthnet.agent.tools.builtin": "builtin_tools",
            "hearthnet.agent.tools.names": "placeholder_name=placeholder",
        },
    )

__all__ = [
    "PersonDevices",
    "builtin_tools",
    "drain",
    "placeholder_name",
]
