"""The port that every model stands behind.

See: docs/models.md.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from hearthnet_llm.frames import Frame
from hearthnet_llm.profile import Profile
from hearthnet_llm.request import ChatRequest, CompleteRequest

FrameStream = AsyncGenerator[Frame, None]


class Backend(Protocol):
    """One model.

    Both methods give frames up to exactly one `Done`, or raise `HearthNetError`. Closing the generator
    stops the work and frees what it held within 200 ms (docs/protocol/streams.md#cancel).
    """

    @property
    def profile(self) -> Profile:
        """What the model can do."""
        ...

    def stream(self, request: ChatRequest) -> FrameStream:
        """Continues a conversation whose order has been checked (`conversation.check`)."""
        ...

    def complete(self, request: CompleteRequest) -> FrameStream:
        """Continues one text; gives no tool frames."""
        ...

    async def close(self) -> None:
        """Lets go of everything; calls still running end with an error."""
        ...
