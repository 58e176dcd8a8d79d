"""One recorded exchange, as its file says it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

PREFIX = "openai-compatible_"


class Sent(msgspec.Struct, frozen=True):
    """The request; `json` None where the body was not recorded."""

    method: str | None = None
    path: str | None = None
    json: Any = None


class Answered(msgspec.Struct, frozen=True):
    """The response. `wire`: its bytes as text where `body` holds them in another framing."""

    status: int
    body: Any
    content_type: str | None = None
    encoding: str | None = None
    wire: str | None = None

    @property
    def data(self) -> bytes:
        """The body as it came over the wire."""
        body = self.body if self.wire is None else self.wire
        if not isinstance(body, str):
            return json.dumps(body).encode()
        return base64.b64decode(body) if self.encoding == "base64" and self.wire is None else body.encode()


class Recording(msgspec.Struct, frozen=True):
    """One file. `features` is a hint for people and never read here."""

    id: str
    provider: str
    response: Answered
    request: Sent | None = None
    stream: bool = False

    @property
    def wire(self) -> str:
        """The wire it is in."""
        return "openai" if self.provider.startswith((PREFIX, "azure")) else self.provider

    @property
    def vendor(self) -> str:
        """The profile of that wire."""
        return self.provider.removeprefix(PREFIX)


class Unreadable(msgspec.Struct, frozen=True):
    """A file that is no recording, and why."""

    id: str
    provider: str
    why: str


def recordings(folder: Path) -> Iterator[Recording | Unreadable]:
    """All of a folder, sorted; `provider` is the name of the folder a file lies in."""
    for file in sorted(folder.glob("*/*.json")):
        try:
            read = msgspec.json.decode(file.read_bytes(), type=Recording)
        except msgspec.DecodeError as error:
            yield Unreadable(file.stem, file.parent.name, str(error))
        else:
            yield msgspec.structs.replace(read, id=file.stem, provider=file.parent.name)
