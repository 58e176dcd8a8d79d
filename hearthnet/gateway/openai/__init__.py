"""OpenAI's API over the mesh: `/v1/models` and `/v1/chat/completions`.

See: docs/gateway.md, "OpenAI".
"""

from __future__ import annotations
