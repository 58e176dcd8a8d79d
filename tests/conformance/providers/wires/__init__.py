"""What each wire's recordings say, read by other and simpler means than the product's.

One module per wire, named as its product module, with:

- `expect(recording) -> Expected`: a successful answer;
- `JSON_TEXTS`: paths of the request that hold JSON as text, compared as the JSON they hold;
- `DIFFER`: what may differ per vendor of the wire (`differences.Differ`), under "" for all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

import msgspec

from tests.conformance.providers.differences import Differ
from tests.conformance.providers.recording import Recording


class Call(msgspec.Struct, frozen=True):
    """One call; `id` None where the recording gives none, or one that it gave before."""

    id: str | None
    name: str
    arguments: dict[str, Any]


class Expected(msgspec.Struct, kw_only=True):
    """What the frames of an answer must say.

    `stops`: the canonical stop reasons that are right. `tokens` (in, out) None: not reported, so estimated.
    `broken`: names of calls whose arguments are no complete JSON object. `signatures`: opaque proofs and
    ciphers of thoughts and calls, in order. `failed`: an error inside the answer, or one that broke off;
    `words` are the vendor's about it.
    """

    text: str = ""
    thinking: str = ""
    calls: list[Call] = []
    broken: list[str] = []
    stops: tuple[str, ...] = ()
    tokens: tuple[int, int] | None = None
    cached: int | None = None
    signatures: list[str] = []
    failed: bool = False
    words: str = ""


class WireFacts(Protocol):
    """A module of this package."""

    @property
    def JSON_TEXTS(self) -> tuple[str, ...]: ...

    @property
    def DIFFER(self) -> dict[str, tuple[Differ, ...]]: ...

    def expect(self, recording: Recording) -> Expected: ...


def facts(wire: str) -> WireFacts:
    """The module for a wire; one that is missing is an error, not a pass."""
    return cast(WireFacts, import_module(f"{__name__}.{wire.replace('-', '_')}"))
