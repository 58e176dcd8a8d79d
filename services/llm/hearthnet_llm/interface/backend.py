"""The interface of all models.

See: docs/models.md.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from hearthnet_llm.interface.frames import Frame
from hearthnet_llm.interface.profile import Profile
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest

FrameStream = AsyncGenerator[Frame, None]


class Backend(Protocol):
    """One model.

    `stream` and `complete` yield frames up to exactly one `Done`, or raise `HearthNetError`. Closing the
    generator stops the work and frees its resources within 200 ms (docs/protocol/streams.md#cancel).
    """

    @property
    def profile(self) -> Profile:
        """Abilities of the model."""
        ...

    def stream(self, request: ChatRequest) -> FrameStream:
        """Continue a conversation whose order was checked (`conversation.check`)."""
        ...

    def complete(self, request: CompleteRequest) -> FrameStream:
        """Continue one text; yields no frames of tools."""
        ...

    async def close(self) -> None:
        """Release all resources; running calls end with an error."""
        ...
