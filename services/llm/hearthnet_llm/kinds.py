"""What a `kind` in the config stands for, as data: a wire, a vendor of it, where it is met, how it is listed.

A new kind is a row here, a word in `hearthnet.config.ModelKind`, and one in the contract llm.models.check.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

from hearthnet.config import ModelConfig, ModelKind
from hearthnet_llm.vendors import addresses, profiles
from hearthnet_llm.vendors.catalog import Listing
from hearthnet_llm.vendors.wire import Target

_VERSION: Final = {"anthropic-version": "2023-06-01"}


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`url` and `variable` are for who names none. `below` ends the address of the wire itself.

    `key` is the header of the key, None for that of the vendor's profile. `ctx` (tokens), `tools` and
    `vision` are what is taken for true where neither the config nor the server says it.
    """

    wire: str
    vendor: str = ""
    below: str = ""
    url: str = ""
    variable: str = ""
    key: tuple[str, str] | None = None
    listing: Listing = Listing()
    ctx: int = 8192
    tools: bool = True
    vision: bool = False
    hosts: tuple[str, ...] = ()


KINDS: Final[dict[ModelKind, Kind]] = {
    "openai": Kind(wire="openai", url="https://api.openai.com/v1", variable="OPENAI_API_KEY"),
    "ollama": Kind(
        wire="openai",
        vendor="ollama",
        below="/v1",
        url="http://127.0.0.1:11434",
        listing=Listing(path="/api/tags", details="/api/show", loaded="/api/ps"),
        ctx=4096,
    ),
    "azure": Kind(
        wire="openai",
        vendor="azure",
        variable="AZURE_OPENAI_API_KEY",
        ctx=128_000,
        hosts=profiles.VENDORS["azure"].hosts,
    ),
    "anthropic": Kind(
        wire="anthropic",
        url="https://api.anthropic.com/v1",
        variable="ANTHROPIC_API_KEY",
        key=("x-api-key", "{key}"),
        listing=Listing(path="/models?limit=1000", headers=_VERSION),
        ctx=200_000,
        vision=True,
        hosts=("api.anthropic.com",),
    ),
    "gemini": Kind(
        wire="gemini",
        url="https://generativelanguage.googleapis.com/v1beta",
        variable="GEMINI_API_KEY",
        key=("x-goog-api-key", "{key}"),
        listing=Listing(path="/models?pageSize=1000"),
        ctx=1_000_000,
        vision=True,
        hosts=("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    ),
}


def at(url: str) -> ModelKind | None:
    """The kind whose vendor is met at `url`; None for any other server."""
    host = (urlsplit(url).hostname or "").lower()
    for name, kind in KINDS.items():
        if any(host == known or host.endswith(f".{known}") for known in kind.hosts):
            return name
    return None


def target(config: ModelConfig) -> Target:
    """Where the requests to a model go; without a login."""
    kind = KINDS[config.kind]
    url, _ = addresses.without_login(config.url)
    spelling = {"model": "path"} if config.kind == "azure" and "/deployments/" in url else {}
    return Target(
        model=config.model,
        base=addresses.base(url, kind.below),
        vendor=kind.vendor or profiles.at(url),
        api_version=config.api_version,
        spelling=spelling,
    )


def root(config: ModelConfig) -> str:
    """What a listing's paths are appended to; without a login."""
    kind = KINDS[config.kind]
    url, _ = addresses.without_login(config.url)
    return addresses.base(url, kind.below).removesuffix(kind.below)


def key_header(config: ModelConfig) -> tuple[str, str]:
    """The header that carries the key, and its value with {key} in it."""
    return KINDS[config.kind].key or profiles.vendor(target(config).vendor).key
