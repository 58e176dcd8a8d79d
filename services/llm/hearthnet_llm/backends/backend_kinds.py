"""The kinds of models in the config, as data, and the profiles that follow from them.

A new kind is a row here, a word in `hearthnet.core.config.ModelKind`, and one in the contract
llm.models.check. In a profile the config has priority, then knowledge learned by testing, then the server's
data, then the kind's defaults.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

from hearthnet.core import ModelConfig, ModelKind
from hearthnet.models import base_url, is_near, without_login
from hearthnet_llm.backends import aws
from hearthnet_llm.interface.backend import Profile
from hearthnet_llm.vendors.catalog import CatalogEntry, ModelCatalog
from hearthnet_llm.vendors.openai import dialect
from hearthnet_llm.vendors.wire import HttpRequest, Target

_BEARER: Final = ("Authorization", "Bearer {key}")
_CLAUDE: Final = "claude"
"""Part of the names of Anthropic's models, at any provider."""
_VERTEX: Final = "aiplatform.googleapis.com"
_VERSION: Final = {"anthropic-version": "2023-06-01"}
FEW: Final = 4
"""Concurrent answers of a nearby server, which mostly runs on the hardware of one computer."""
MANY: Final = 64
"""Concurrent answers of a vendor, or of a server program made for many."""
_BATCHING: Final = ("vllm",)


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of connection.

    `url` and `variable` are defaults. `below` is the path at which the protocol's own address ends. `wires`
    replaces `wire` for models whose name contains a text; likewise `sighted` are models with vision.

    `key` is the header of the key, None for that of the vendor's profile. `ctx` (tokens), `tools` and
    `vision` are assumed if neither the config nor the server states them; with `ctx_guessed`, models of the
    kind differ too much for refusing a request because of `ctx`. `signed`: without a key of its own, a
    request is signed for AWS.
    """

    wire: str
    wires: tuple[tuple[str, str], ...] = ()
    vendor: str = ""
    below: str = ""
    url: str = ""
    variable: str = ""
    key: tuple[str, str] | None = None
    listing: ModelCatalog = ModelCatalog()
    ctx: int = 8192
    ctx_guessed: bool = False
    tools: bool = True
    vision: bool = False
    sighted: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    signed: bool = False


KINDS: Final[dict[ModelKind, Kind]] = {
    "openai": Kind(
        wire="openai", url="https://api.openai.com/v1", variable="OPENAI_API_KEY", ctx_guessed=True
    ),
    "ollama": Kind(
        wire="ollama",
        url="http://127.0.0.1:11434",
        listing=ModelCatalog(path="/api/tags", details="/api/show", loaded="/api/ps"),
        ctx=4096,
    ),
    "azure": Kind(
        wire="openai",
        vendor="azure",
        variable="AZURE_OPENAI_API_KEY",
        ctx=128_000,
        hosts=dialect.VENDORS["azure"].hosts,
    ),
    "anthropic": Kind(
        wire="anthropic",
        url="https://api.anthropic.com/v1",
        variable="ANTHROPIC_API_KEY",
        key=("x-api-key", "{key}"),
        listing=ModelCatalog(path="/models?limit=1000", headers=_VERSION),
        ctx=200_000,
        vision=True,
        hosts=("api.anthropic.com",),
    ),
    "gemini": Kind(
        wire="gemini",
        url="https://generativelanguage.googleapis.com/v1beta",
        variable="GEMINI_API_KEY",
        key=("x-goog-api-key", "{key}"),
        listing=ModelCatalog(path="/models?pageSize=1000"),
        ctx=1_000_000,
        vision=True,
        hosts=("generativelanguage.googleapis.com", _VERTEX),
    ),
    "bedrock": Kind(
        wire="bedrock-converse",
        wires=(("anthropic.claude", "bedrock-anthropic"),),
        key=_BEARER,
        listing=ModelCatalog(path=""),
        ctx=128_000,
        sighted=("anthropic.claude", "nova-lite", "nova-pro", "nova-premier", "nova-2", "llama4", "pixtral"),
        signed=True,
    ),
}


def at(url: str) -> ModelKind | None:
    """Return the kind whose vendor is at `url`, or None for any other server."""
    host = (urlsplit(url).hostname or "").lower()
    if aws.is_bedrock(host):
        return "bedrock"
    for name, kind in KINDS.items():
        if any(host == known or host.endswith((f".{known}", f"-{known}")) for known in kind.hosts):
            return name
    return None


def wire_of(config: ModelConfig) -> str:
    """Return the name of a model's protocol."""
    kind = KINDS[config.kind]
    return next((name for part, name in kind.wires if part in config.model), kind.wire)


def sees(config: ModelConfig) -> bool:
    """Return whether the model has vision, according to its kind and name."""
    kind = KINDS[config.kind]
    return kind.vision or any(part in config.model for part in kind.sighted)


def target(config: ModelConfig, server: str = "") -> Target:
    """Return the target of requests to a model, without a login.

    `server` is the server program, for addresses that do not identify it.
    """
    kind = KINDS[config.kind]
    url = _url(config)
    spelling = {"model": "path"} if config.kind == "azure" and "/deployments/" in url else {}
    if config.kind == "anthropic" and at(url) != "anthropic" and _CLAUDE not in config.model.lower():
        spelling = {"sampling": "sent", "unproved": "sent"}
    return Target(
        model=config.model,
        base=base_url(url, kind.below),
        vendor=kind.vendor or dialect.vendor_at(url) or server,
        api_version=config.api_version,
        spelling=spelling,
    )


def root(config: ModelConfig) -> str:
    """Return the address, without a login, to which a listing's paths are appended."""
    kind = KINDS[config.kind]
    return base_url(_url(config), kind.below).removesuffix(kind.below)


def listing_request(config: ModelConfig) -> HttpRequest:
    """Return the request for the list of models."""
    listing = KINDS[config.kind].listing
    return HttpRequest("GET", root(config) + listing.path, {}, listing.headers)


def key_header(config: ModelConfig) -> tuple[str, str]:
    """Return the header for the key, and its value with {key} as a placeholder."""
    url = urlsplit(config.url)
    if (url.hostname or "").endswith(_VERTEX) and "/projects/" in url.path:  # other paths take an API key
        return _BEARER
    return KINDS[config.kind].key or dialect.vendor(target(config).vendor).key


def _url(config: ModelConfig) -> str:
    """Return the URL without a login; Ollama's own protocol is beside /v1, not below it."""
    url, _ = without_login(config.url)
    return url.rstrip("/").removesuffix("/v1") if config.kind == "ollama" else url


def profile_of(config: ModelConfig, entry: CatalogEntry) -> Profile:
    """Return the profile of the model; `entry` has its server's data and learned abilities."""
    kind = KINDS[config.kind]
    tools = _first(config.tools is not False if config.tools is not None else None, entry.tools, kind.tools)
    vision = _first(config.vision, entry.vision, sees(config))
    near = is_near(config.url)
    return Profile(
        model=config.name,
        backend=config.kind,
        ctx=config.ctx or entry.ctx or kind.ctx,
        ctx_known=bool(config.ctx or entry.ctx or not kind.ctx_guessed),
        aliases=(config.model,) if config.model != config.name else (),
        languages=config.languages,
        tool_mode="text" if config.tools == "text" else "native" if tools else "none",
        modalities=("text", "vision") if vision else ("text",),
        continues=True,
        summarises=True,
        requires_internet=not near,
        max_concurrent=config.max_concurrent or (FEW if near and entry.server not in _BATCHING else MANY),
    )


def _first(*values: bool | None) -> bool:
    """Return the first value other than None, or False."""
    return next((value for value in values if value is not None), False)
