"""What each vendor's module offers: a request out, a native request in, and an answer's bytes into frames.

No I/O here: keys, signatures, connections and time are the backend's. A key never enters these types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from hearthnet.models.connection import HttpRequest
from hearthnet_llm.frames import Frame
from hearthnet_llm.request import ChatRequest

__all__ = ["Decoder", "Heard", "HttpRequest", "Json", "Target", "Wire"]
Json = dict[str, Any]


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a request goes, from the config: nothing here depends on what is asked.

    `base` is what the wire's own path is appended to. `vendor` names a profile of the wire. `spelling`
    chooses among a wire's `SPELLINGS`, where one vendor takes several names or forms for the same thing;
    absent: as the profile has it. `ctx`: tokens of context that the server is to keep, where each request
    says it; None: as the server has it. `answer`: most tokens of an answer, for vendors that demand a bound
    where the caller names none; None: by the model's name.
    """

    model: str
    base: str = ""
    vendor: str = ""
    api_version: str = ""
    spelling: dict[str, str] = {}
    ctx: int | None = None
    answer: int | None = None


class Heard(msgspec.Struct, frozen=True):
    """What is known of a successful answer before its body is read.

    `name` is the backend's, for messages. `prompt_size` in characters: tokens are estimated from it where
    none are reported.
    """

    name: str
    content_type: str = ""
    prompt_size: int = 0


class Decoder(Protocol):
    """The body of one successful answer. Feed it as it comes, then `finish`; exactly one `Done` comes last.

    Both give the frames that are ready, then raise `HearthNetError` for an error inside the answer, for one
    that is none of this wire's, and (`finish`) for one that broke off. Where the bytes are cut makes no
    difference to the frames.
    """

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes."""
        ...

    def finish(self) -> Iterator[Frame]:
        """What was still open, and the end."""
        ...


class Wire(Protocol):
    """One wire: a module with these names."""

    @property
    def SPELLINGS(self) -> Mapping[str, tuple[str, ...]]:
        """For each choice of `Target.spelling` its values; the first is the default."""
        ...

    def encode(self, request: ChatRequest, target: Target) -> HttpRequest:
        """The native request; `bad_request` for what the vendor cannot take."""
        ...

    def read(self, native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
        """A native request as the canonical one, and the target that `encode` makes the same of again.

        `bad_request` with the field for what is no request of this wire.
        """
        ...

    def decoder(self, heard: Heard) -> Decoder:
        """For one answer, streamed or in one piece."""
        ...
