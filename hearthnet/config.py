"""What a node's owner may set (resolutions.md, "configuration").

`Config` is what stands in `hearthnet.toml` in the data folder: every key has a default, an unknown key is an
error and not a shrug, and a damaged file is named with its line and never overwritten.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet.home import Home

_NO_TEXT: Final = "this is no text in UTF-8, as settings are"
NO_VARIABLE: Final = (
    "api_key_env is the name of the environment variable that holds the key, such as EXAMPLE_API_KEY; "
    "the key itself does not belong into a file"
)
"""Said without the value: it may be a key."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ENDPOINT: Final = re.compile(r"https?://[^/@\s]+(/[^@\s]*)?")
_KEY_LIKE: Final = re.compile(r"(sk|gsk|hf|xai|pk|AIza|AKIA|nvapi|glpat|ghp)[_-]?[A-Za-z0-9_]{12,}")


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[node]: how this computer presents itself."""

    display_name: str = ""


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[server]: the NATS server. `port` is tried first; in use, or 0, a free one is taken."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 4222


class CommunityConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[community]: where the homes of other members reach this one.

    `host` is the address to listen on, beyond loopback with TLS. `port` is tried first; in use, or 0, a free
    one is taken. `address` is what invites say, `host` or `host:port`; empty: this computer's own.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 7422
    address: str = ""


class ServicesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[services]: which services run here; None stands for every installed one."""

    enabled: tuple[str, ...] | None = None


ModelKind = Literal["openai", "ollama", "azure", "anthropic", "gemini", "bedrock"]


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[[llm.models]]: a model behind a URL; the mesh calls it `name`, its own server `model`.

    `ctx` (tokens), `tools` and `vision` say what it can where its server does not, or says it wrongly;
    `tools` False also ends all attempts to find out, and "text" has them declared in the prompt and called in
    the answer's text (docs/models.md). `api_version` is Azure's.
    """

    kind: ModelKind
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    url: str
    model: Annotated[str, msgspec.Meta(min_length=1)]
    api_key_env: str | None = None
    ctx: Annotated[int, msgspec.Meta(ge=1)] | None = None
    tools: bool | Literal["text"] | None = None
    vision: bool | None = None
    api_version: str = ""

    def __post_init__(self) -> None:
        if self.api_key_env is not None and not names_variable(self.api_key_env):
            raise ValueError(NO_VARIABLE)


def names_variable(text: str) -> bool:
    """Whether `text` is the name of an environment variable, and does not look like a key itself."""
    mixed = any(c.islower() for c in text) and any(c.isupper() for c in text) and any(map(str.isdigit, text))
    like_a_key = _KEY_LIKE.fullmatch(text) and not text.isupper()
    return bool(_VARIABLE.fullmatch(text)) and not like_a_key and not (mixed and len(text) >= 20)


class ScriptedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[llm.scripted]]: no model, but what stands in `file`; without a folder it lies beside the settings."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    file: Annotated[str, msgspec.Meta(min_length=1)]


_ASKED_ALWAYS: Final = (
    "tools_require_confirmation_for_side_effects is always true: whoever carries out an effect demands your "
    "signed yes to exactly that call, and nobody gives it unasked; to be asked less, use hearthnet grants add"
)


class LlmConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[llm]: the built-in model, and others; `threads` 0 stands for as many as the computer has cores.

    `tools_*` are for runs of the tool loop that begin on this node (hearthnet/tools/settings.py).
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
            raise ValueError(_ASKED_ALWAYS)


NOWHERE: Final = "none"
"""The endpoint of [telemetry] for: nowhere, whatever the environment says."""
_NO_ENDPOINT: Final = (
    'endpoint is where OTLP is taken over HTTP, such as "http://127.0.0.1:4318", or "none"; what lets us in '
    "there belongs into the environment variable OTEL_EXPORTER_OTLP_HEADERS"
)


class TelemetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[telemetry]: where spans and metrics go. Empty: where the OTEL_ variables say, else nowhere."""

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
"""Said without the value."""


class McpServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[[mcp.servers]]: a program whose tools are offered as `experimental.mcp.NAME.TOOL` (docs/mcp.md).

    `env` names variables of the node's environment that it gets; in `command`, ${NAME} stands for the value
    of one. `read_only` tools are called without a question, and with `trust_hints` those that the program
    itself calls read-only. `share` offers them to all members, and not only to this node.
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
        """The command with the values of `environment`; `bad_request` names a variable that is not set."""
        return tuple(
            _PLACEHOLDER.sub(lambda found: _value(found[1], environment), word) for word in self.command
        )

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What the program gets of `environment`; `bad_request` as `filled`."""
        return {name: _value(name, environment) for name in self.env}


def _value(name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise HearthNetError(
            "bad_request", f"{name} is not set where the node was started; set it and start the node again"
        )
    return environment[name]


def looks_like_a_key(text: str) -> bool:
    """Whether a word of a command, or what follows its `=`, looks like a key or a token."""
    word = text.rpartition("=")[2]
    return bool(_KEY_LIKE.fullmatch(word)) and not word.isupper()


class McpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[mcp]: MCP servers that run with this node."""

    servers: tuple[McpServerConfig, ...] = ()

    def __post_init__(self) -> None:
        names = [server.name for server in self.servers]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"there are two servers called {repeated[0]}")


class FileConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[file]: how much content others may have kept here, and what stays free; MB of a million bytes.

    `quota_mb` counts all content, the documents of corpora too.
    """

    quota_mb: Annotated[int, msgspec.Meta(ge=0)] = 20_000
    keep_free_mb: Annotated[int, msgspec.Meta(ge=0)] = 1_000


PerSecond = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[limits]: how many calls a second another node may make of one process here; 0 stands for any number.

    Over the soft limits it is told when to come back, over the hard ones to stay away for ten seconds.
    """

    capability_soft: PerSecond = 10
    capability_hard: PerSecond = 100
    total_soft: PerSecond = 100
    total_hard: PerSecond = 1_000


_ORIGIN: Final = re.compile(r"https?://[a-z0-9.:\[\]-]{1,255}")
_NO_ORIGIN: Final = (
    'origins are where other pages come from, as a browser writes it: "https://example.org", without a path'
)


class GatewayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[gateway]: where web pages and programs reach the mesh (docs/gateway.md).

    `port` is tried first; in use, or 0, a free one is taken. A WebSocket is pinged every `ping_seconds`, and
    closed after `idle_close_seconds` without traffic. `origins` are of pages from elsewhere that may
    ask here, `names` what else this computer is called by those who come. `certificate` and `key` are PEM
    files, without which `host` is of loopback.
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
    mcp: McpConfig = McpConfig()
    file: FileConfig = FileConfig()
    limits: LimitsConfig = LimitsConfig()
    gateway: GatewayConfig = GatewayConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    @property
    def display_name(self) -> str:
        """The name under which others see this computer: the one that is set, else its host name."""
        return self.node.display_name or os.uname().nodename


DEFAULT_CONFIG: Final = """\
# HearthNet: the settings of this node, with their defaults. What is commented out is an example.
# Models ([[llm.models]]) and MCP servers ([[mcp.servers]]) are taken while the node runs, tools_* with the
# next question; all else takes effect at the next `hearthnet up`.

[node]
# The name under which others see this computer. Empty: its host name.
display_name = ""

[server]
# Programs on this computer reach the node at this port. If something else uses it, a free one is taken
# and shown. 0: always take a free one.
port = 4222

[community]
# Where the homes of other members reach this one. 127.0.0.1: only from this computer. 0.0.0.0: from
# everywhere in the network, with TLS; whoever is not invited still gets in nowhere.
host = "127.0.0.1"
# If something else uses this port, a free one is taken and shown. 0: always take a free one.
port = 7422
# What invites say, as a name or address that others can reach: "kitchen.local", "192.0.2.7:7422".
# Empty: this computer's own address.
address = ""

[services]
# Which services run here. Left out: every service that is installed.
# enabled = ["auth", "llm", "rag", "market", "mesh", "file", "embed", "mcp"]

[gateway]
# The web page and the door for programs: HTTP, WebSocket, the OpenAI API, MCP. false: none of it.
enabled = true
# 127.0.0.1: only from this computer. 0.0.0.0: from everywhere in the network, with TLS, for which certificate
# and key name PEM files that the browsers of those who come trust.
host = "127.0.0.1"
certificate = ""
key = ""
# If something else uses this port, a free one is taken and shown. 0: always take a free one.
port = 8420
# How often a WebSocket is pinged, and after how long without traffic it is closed; seconds.
ping_seconds = 30
idle_close_seconds = 120
# Pages from elsewhere that may ask here: ["https://example.org"].
origins = []
# What else this computer is called by those who come: ["kitchen.example"].
names = []

[telemetry]
# Where traces and metrics go, by OTLP over HTTP: "http://127.0.0.1:4318". Empty: where the environment
# variable OTEL_EXPORTER_OTLP_ENDPOINT says, else nowhere. "none": nowhere.
endpoint = ""

[file]
# How much may be put with `hearthnet file put`, by this node and others: all content together, in MB. What
# is kept for a while only goes early from four fifths of that on.
quota_mb = 20000
# What has to stay free on the disk, in MB.
keep_free_mb = 1000

[limits]
# How many calls a second another member's node may make of each service here: of one capability, and of all
# together. 0: any number. Over the soft limits it is told when to come back, over the hard ones to stay away
# for ten seconds. This node's own calls are not counted.
capability_soft = 10
capability_hard = 100
total_soft = 100
total_hard = 1000

[llm]
# Offer the small built-in model. It is there to try things out; it understands English only.
builtin = true
# How many cores the built-in model may use. 0: all.
threads = 0
# A GGUF file to use in place of the built-in model. Empty: the built-in one.
model_file = ""

# Whether models may be given tools by what runs on this node (`hearthnet ask`, the gateway).
tools_enabled = true
# How often a model may call tools and be asked again, how many calls run at once, and how long one may take.
tools_max_iterations = 6
tools_max_parallel = 4
tools_per_tool_timeout_seconds = 30
# What a model that can choose is given where no tool is named; `hearthnet tools` lists what there is.
tools_default_set = ["search_corpus", "list_corpora", "translate", "list_marketplace"]
# Whatever has a side effect is shown first. This is always true.
tools_require_confirmation_for_side_effects = true

# A better model; `hearthnet models add` writes this. kind is openai (any server that speaks the OpenAI API),
# ollama, azure, anthropic, gemini or bedrock. Several are fine; the first that can do what is asked is taken.
# api_key_env names the environment variable that holds the key; the key itself does not belong in here.
# ctx (tokens), tools and vision (true or false) say what the model can where its server does not.
# With "text" for tools a model that calls none writes its calls in its text (docs/models.md).
# [[llm.models]]
# kind = "ollama"
# name = "qwen3-8b"
# url = "http://127.0.0.1:11434"
# model = "qwen3:8b"
# api_key_env = "EXAMPLE_API_KEY"

# A program whose tools the model may call; `hearthnet mcp add` writes this. Calls are confirmed first, but
# for the tools in read_only. env names environment variables of the node that the program gets.
# [[mcp.servers]]
# name = "notes"
# command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me/notes"]
# read_only = ["read_text_file", "list_directory"]
"""


def load_config(home: Home) -> Config:
    """The settings in `home`, the defaults where there is no file yet.

    `bad_request` names the file, the line where it is known, and what to do: for a file that is no text or
    cannot be read, text that is no TOML, an unknown key or a value of the wrong kind.
    """
    try:
        data = home.config_file.read_bytes()
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise _damaged(home.config_file, f"cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(home.config_file, _NO_TEXT) from error
    if "\0" in text:
        raise _damaged(home.config_file, _NO_TEXT)
    return parse_config(text, home.config_file)


def parse_config(text: str, file: Path) -> Config:
    """The settings in `text`; `file` is named in the error, which is as that of `load_config`."""
    import tomllib

    try:
        return msgspec.convert(tomllib.loads(text), Config)
    except tomllib.TOMLDecodeError as error:
        reason, line = _toml_reason(str(error))
        raise _damaged(file, reason, line) from error
    except msgspec.ValidationError as error:
        reason, path = _schema_reason(str(error))
        raise _damaged(file, reason, line_of(text, path)) from error


def _damaged(file: Path, reason: str, line: int | None = None) -> HearthNetError:
    place = f"{file}: line {line}" if line is not None else str(file)
    return HearthNetError(
        "bad_request",
        f"{place}: {reason}; mend it, or move it away and a new one is written",
        details={"path": str(file), **({"line": line} if line is not None else {})},
    )


def _toml_reason(message: str) -> tuple[str, int | None]:
    """Splits the parser's `... (at line 7, column 3)`."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", message, re.DOTALL)
    return (found[1], int(found[2])) if found else (message, None)


def _schema_reason(message: str) -> tuple[str, tuple[str | int, ...]]:
    """Splits msgspec's "Expected `int`, got `str` - at `$.server.port`"; says it in the words of the file."""
    reason, _, place = message.partition(" - at `$")
    found = _STEP.findall(place.rstrip("`"))
    steps: list[str | int] = [int(step[1:-1]) if step[0] == "[" else step for step in found]
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", reason, re.DOTALL)
    if unknown:
        steps.append(unknown[1])
        return f"there is no setting {'.'.join(str(step) for step in steps)}", tuple(steps)
    return (f"{'.'.join(str(step) for step in steps)}: {reason}" if steps else reason), tuple(steps)


_STEP: Final = re.compile(r"\[\d+\]|[^.\[\]]+")
_HEADER: Final = re.compile(r"\s*(\[{1,2})\s*([^\[\]]+?)\s*\]{1,2}")
_KEY: Final = re.compile(r"\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*[=.]")


class _Line(NamedTuple):
    path: tuple[str | int, ...]
    number: int


def line_of(text: str, path: tuple[str | int, ...]) -> int | None:
    """The line (from 1) of TOML `text` that sets `path`, else that of the closest table around it."""
    lines = _lines(text)
    for size in range(len(path), 0, -1):
        for line in lines:
            if line.path == path[:size]:
                return line.number
    return None


def _lines(text: str) -> list[_Line]:
    """The path that each header and each `key =` of a TOML text sets, in order."""
    table: tuple[str | int, ...] = ()
    counts: dict[str, int] = {}
    lines: list[_Line] = []
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            name = header[2]
            table = tuple(part.strip(" \"'") for part in name.split("."))
            if header[1] == "[[":
                counts[name] = counts.get(name, -1) + 1
                table = (*table, counts[name])
            lines.append(_Line(table, number))
        elif key:
            lines.append(_Line((*table, key[1]), number))
    return lines
