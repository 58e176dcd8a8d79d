"""The interface of each vendor's module: requests in both directions, answers to frames.

There is no I/O here: keys, signatures, connections and time belong to the backend. A key never enters these
types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from hearthnet.models import HttpRequest
from hearthnet_llm.interface.request import ChatRequest

if TYPE_CHECKING:
    from hearthnet_llm.vendors.decoding import Decoder

__all__ = ["HttpRequest", "Json", "ResponseInfo", "Target", "Wire"]
Json = dict[str, Any]


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """Destination of requests, from the config; independent of the request.

    The protocol's own path is appended to `base`. `vendor` names a profile of the protocol. `spelling`
    chooses among its `SPELLINGS`, if a vendor accepts several names or forms; missing choices are the
    profile's. `ctx`: tokens of context to reserve, if each request states them; None is the server's default.
    `answer`: limit of an answer's tokens, for vendors that require one, if the caller gives none; None
    depends on the model's name.
    """

    model: str
    base: str = ""
    vendor: str = ""
    api_version: str = ""
    spelling: dict[str, str] = {}
    ctx: int | None = None
    answer: int | None = None


class ResponseInfo(msgspec.Struct, frozen=True):
    """Data of a successful response before its body is read.

    `name` is the backend's, for messages. `prompt_size` is in characters, for an estimate of tokens if the
    vendor reports none.
    """

    name: str
    prompt_size: int = 0


class Wire(Protocol):
    """One protocol: a module with these names."""

    @property
    def SPELLINGS(self) -> Mapping[str, tuple[str, ...]]:
        """The values of each choice of `Target.spelling`; the first is the default."""
        ...

    def encode(self, request: ChatRequest, target: Target) -> HttpRequest:
        """Return the native request.

        Raises:
            HearthNetError: `bad_request` for a request that the vendor does not support.
        """
        ...

    def read(self, native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
        """Return the canonical form of a native request, and its target.

        With that target `encode` restores the native request.

        Raises:
            HearthNetError: `bad_request`, with the field, if it is no request of this protocol.
        """
        ...

    def decoder(self, info: ResponseInfo) -> Decoder:
        """Return a decoder for one answer, streamed or in one piece."""
        ...
