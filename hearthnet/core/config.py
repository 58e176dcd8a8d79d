"""Settings of a node, as its owner writes them.

`Config` mirrors `hearthnet.toml` in the data folder, which config_loader.py reads. Every key has a default;
an unknown key is an error.

See: docs/operations.md#what-lies-where.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from hearthnet.core.errors import HearthNetError

NO_VARIABLE: Final = (
    "api_key_env is the name of the environment variable that holds the key, such as EXAMPLE_API_KEY; "
    "the key itself does not belong into a file"
)
"""The message omits the value, which may be a key."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ENDPOINT: Final = re.compile(r"https?://[^/@\s]+(/[^@\s]*)?")
_KEY_LIKE: Final = re.compile(r"(sk|gsk|hf|xai|pk|AIza|AKIA|nvapi|glpat|ghp)[_-]?[A-Za-z0-9_]{12,}")


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[node]: the name of this computer for others."""

    display_name: str = ""


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[server]: the NATS server.

    `port` is the preferred port; if it is in use, or 0, a free one is chosen.
    """

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 4222


class CommunityConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[community]: the address at which the homes of other members reach this one.

    `host` is the address to listen on, with TLS beyond loopback. If `port` is the default and in use, or 0, a
    free port is chosen and kept; any other number is the port, and an error if it is in use. `address` is the
    `host` or `host:port` in invites; empty means this computer's own. With `zeroconf` the home announces
    itself on its network where others reach it, and looks there for a home that it does not reach.
    `host` or `host:port` in invites; empty means this computer's own. Of earlier events of other homes
    this one fetches at most `history_mb` megabytes a day, with at most `history_cpu` percent of one core.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 7422
    address: str = ""
    zeroconf: bool = True
    history_mb: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4_000
    history_cpu: Annotated[int, msgspec.Meta(ge=1, le=100)] = 80


class ServicesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[services]: the services that run on this node; None means every installed one."""

    enabled: tuple[str, ...] | None = None


ModelKind = Literal["openai", "ollama", "azure", "anthropic", "gemini", "bedrock"]


Languages = tuple[Annotated[str, msgspec.Meta(pattern="^[a-z]{2,3}$")], ...]
"""ISO 639-1 codes, or three letters for languages that have none."""


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[[llm.models]]: a model behind a URL, `name` in the mesh and `model` at its own server.

    `ctx` (tokens), `tools` and `vision` state the model's abilities if its server does not, or states them
    wrongly. With `tools` False nothing is probed; with "text" tools are declared in the prompt and called in
    the text of the answer (docs/models.md). The owner vouches for translation between `languages`.
    `max_concurrent` is the number of answers that the server gives at once. `api_version` is for Azure only.
    """

    kind: ModelKind
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    url: str
    model: Annotated[str, msgspec.Meta(min_length=1)]
    api_key_env: str | None = None
    ctx: Annotated[int, msgspec.Meta(ge=1)] | None = None
    tools: bool | Literal["text"] | None = None
    vision: bool | None = None
    languages: Languages = ()
    max_concurrent: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    api_version: str = ""

    def __post_init__(self) -> None:
        if self.api_key_env is not None and not names_variable(self.api_key_env):
            raise ValueError(NO_VARIABLE)


def names_variable(text: str) -> bool:
    """Return whether `text` names an environment variable and does not look like a key itself."""
    mixed = any(c.islower() for c in text) and any(c.isupper() for c in text) and any(map(str.isdigit, text))
    like_a_key = _KEY_LIKE.fullmatch(text) and not text.isupper()
    return bool(_VARIABLE.fullmatch(text)) and not like_a_key and not (mixed and len(text) >= 20)


def _refuse_repeated(names: list[str], what: str) -> None:
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"there are two {what} called {repeated[0]}")


class ScriptedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[llm.scripted]]: answers read from `file` instead of a model.

    A file name without a folder is relative to the folder of the settings.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    file: Annotated[str, msgspec.Meta(min_length=1)]
    languages: Languages = ()


_CONFIRMATION_REQUIRED: Final = (
    "tools_require_confirmation_for_side_effects is always true: whoever carries out an effect demands your "
    "signed yes to exactly that call, and nobody gives it unasked; to be asked less, use hearthnet grants add"
)


class LlmConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[llm]: the built-in model and others; `threads` 0 means one per core.

    `tools_*` are for runs of the tool loop that begin on this node (hearthnet/agent/runtime/settings.py).
    """

    builtin: bool = True
    threads: Annotated[int, msgspec.Meta(ge=0)] = 0
    model_file: str = ""
    tools_enabled: bool = True
    tools_max_iterations: Annotated[int, msgspec.Meta(ge=1, le=100)] = 6
    tools_per_tool_timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 30
    tools_max_parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    tools_require_confirmation_for_side_effects: bool = True
    tools_default_set: tuple[str, ...] = ("search_corpus", "list_corpora", "translate", "list_marketplace")
    models: tuple[ModelConfig, ...] = ()
    scripted: tuple[ScriptedConfig, ...] = ()

    def __post_init__(self) -> None:
        if not self.tools_require_confirmation_for_side_effects:
            raise ValueError(_CONFIRMATION_REQUIRED)


class EmbedModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[[embed.models]]: an embedding model behind a URL.

    The mesh calls it `name` or one of `aliases`, its own server `model`. The owner vouches for `languages`;
    `max_tokens` is the length of text that it reads, if known.
    """

    kind: Literal["openai", "ollama"]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    url: str
    model: Annotated[str, msgspec.Meta(min_length=1)]
    api_key_env: str | None = None
    aliases: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=200)], ...] = ()
    languages: tuple[str, ...] = ()
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        if self.api_key_env is not None and not names_variable(self.api_key_env):
            raise ValueError(NO_VARIABLE)


class EmbedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[embed]: the built-in embedding model, a GGUF file instead of it, and others.

    `threads` 0 means one per core, at most 2.
    """

    builtin: bool = True
    threads: Annotated[int, msgspec.Meta(ge=0)] = 0
    model_file: str = ""
    models: tuple[EmbedModelConfig, ...] = ()

    def __post_init__(self) -> None:
        _refuse_repeated([model.name for model in self.models], "models")


NOWHERE: Final = "none"
"""The endpoint of [telemetry] that exports nothing, regardless of the environment."""
_NO_ENDPOINT: Final = (
    'endpoint is where OTLP is taken over HTTP, such as "http://127.0.0.1:4318", or "none"; what lets us in '
    "there belongs into the environment variable OTEL_EXPORTER_OTLP_HEADERS"
)


class TelemetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[telemetry]: the OTLP endpoint for spans and metrics.

    Empty means the endpoint in the OTEL_ variables; without these nothing is exported.
    """

    endpoint: str = ""

    def __post_init__(self) -> None:
        if self.endpoint not in ("", NOWHERE) and not _ENDPOINT.fullmatch(self.endpoint):
            raise ValueError(_NO_ENDPOINT)


_SERVER_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
NO_SECRETS: Final = (
    "a key does not belong into a file: put it into the environment of the node, and name its variable with "
    "--env, or write ${VARIABLE} in its place"
)
"""The message omits the value, which may be a key."""


class McpServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[[mcp.servers]]: a program whose tools are offered on the mesh (docs/mcp.md).

    The tools are offered as `experimental.mcp.NAME.TOOL`. `env` names the variables of the node's environment
    that are passed to the program; in `command`, ${NAME} is replaced by the value of one. Tools in
    `read_only` are called without an approval, as are, with `trust_hints`, those that the program itself
    declares read-only. `share` offers the tools to all members instead of this node alone.
    """

    name: str
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)]
    env: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    trust_hints: bool = False
    share: bool = False
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=3_600)] = 60

    def __post_init__(self) -> None:
        if not _SERVER_NAME.fullmatch(self.name):
            raise ValueError("name is up to 32 of a-z, 0-9, _ and -, and begins with a letter")
        if not self.command[0].strip() or any("\0" in word for word in self.command):
            raise ValueError("command is the program and its arguments")
        if not all(map(names_variable, self.env)):
            raise ValueError(f"env has names of variables; {NO_SECRETS}")
        if any(map(looks_like_a_key, self.command)):
            raise ValueError(NO_SECRETS)

    def filled(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command with the values of `environment` in place of its ${NAME}.

        Raises:
            HearthNetError: `bad_request` if a variable is not set.
        """
        return tuple(
            _PLACEHOLDER.sub(lambda found: _value(found[1], environment), word) for word in self.command
        )

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the part of `environment` that is passed to the program.

        Raises:
            HearthNetError: `bad_request` if a variable is not set.
        """
        return {name: _value(name, environment) for name in self.env}


def _value(name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise HearthNetError(
            "bad_request", f"{name} is not set where the node was started; set it and start the node again"
        )
    return environment[name]


def looks_like_a_key(text: str) -> bool:
    """Return whether a word of a command, or the part after its `=`, looks like a secret."""
    word = text.rpartition("=")[2]
    return bool(_KEY_LIKE.fullmatch(word)) and not word.isupper()


class McpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[mcp]: MCP servers that run with this node."""

    servers: tuple[McpServerConfig, ...] = ()

    def __post_init__(self) -> None:
        _refuse_repeated([server.name for server in self.servers], "servers")


class FileConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[file]: limits of the content store, in megabytes of a million bytes.

    `quota_mb` limits all content, the documents of corpora included; `keep_free_mb` stays free on the disk.
    """

    quota_mb: Annotated[int, msgspec.Meta(ge=0)] = 20_000
    keep_free_mb: Annotated[int, msgspec.Meta(ge=0)] = 1_000


class AuditConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[audit]: how long the audit log keeps its entries, and how much of it other members may fill.

    Beyond `keep_days`, or `max_mb` megabytes of a million bytes, the oldest entries are removed. A member's
    effects are refused beyond `member_mb_per_day` of entries. 0 means no limit.
    """

    keep_days: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 365
    max_mb: Annotated[int, msgspec.Meta(ge=0)] = 1_000
    member_mb_per_day: Annotated[int, msgspec.Meta(ge=0)] = 16


class BackupConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[backup]: backups on a schedule, made by the running node.

    Every `every_hours` a backup goes to `folder`, an absolute path; the newest `keep` stay. 0 hours, or no
    folder, mean no schedule, `keep` 0 that all stay.
    """

    folder: str = ""
    every_hours: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 24
    keep: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 14

    def __post_init__(self) -> None:
        if self.folder and not self.folder.startswith("/"):
            raise ValueError('folder is an absolute path, such as "/media/backups"')


PerSecond = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[limits]: calls per second that another node may make of one process here.

    0 means no limit. Above a soft limit a call is refused with the time after which to retry, above a hard
    one for ten seconds.
    """

    capability_soft: PerSecond = 10
    capability_hard: PerSecond = 100
    total_soft: PerSecond = 100
    total_hard: PerSecond = 1_000


_ORIGIN: Final = re.compile(
    r"https?://[a-z0-9.:\[\]-]{1,255}|(?!https?:)[a-z][a-z0-9+.-]{0,63}://(\*|[A-Za-z0-9._~:\[\]-]{1,255})"
)
_NO_ORIGIN: Final = (
    'origins are where other pages come from, as a browser writes it: "https://example.org", without a path; '
    'of schemes other than http and https also all: "app://*"'
)


class GatewayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[gateway]: the address at which web pages and programs reach the mesh (docs/gateway.md).

    `port` is the preferred port; if it is in use, or 0, a free one is chosen. A WebSocket is pinged every
    `ping_seconds`, and closed after `idle_close_seconds` without traffic. `origins` are the foreign pages
    that may send requests (in a scheme other than http and https `*` means every host), `names` further host
    names of this computer. `certificate` and `key` are PEM files, without which `host` must be loopback.
    """

    enabled: bool = True
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8420
    ping_seconds: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 30
    idle_close_seconds: Annotated[float, msgspec.Meta(ge=1, le=86400)] = 120
    origins: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if not all(_ORIGIN.fullmatch(origin) for origin in self.origins):
            raise ValueError(_NO_ORIGIN)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of `hearthnet.toml`."""

    node: NodeConfig = NodeConfig()
    server: ServerConfig = ServerConfig()
    community: CommunityConfig = CommunityConfig()
    services: ServicesConfig = ServicesConfig()
    llm: LlmConfig = LlmConfig()
    embed: EmbedConfig = EmbedConfig()
    mcp: McpConfig = McpConfig()
    file: FileConfig = FileConfig()
    limits: LimitsConfig = LimitsConfig()
    audit: AuditConfig = AuditConfig()
    backup: BackupConfig = BackupConfig()
    gateway: GatewayConfig = GatewayConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    @property
    def display_name(self) -> str:
        """The name of this computer for others: the configured one, otherwise its host name."""
        return self.node.display_name or os.uname().nodename
