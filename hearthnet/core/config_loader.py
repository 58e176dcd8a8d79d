"""The settings file `hearthnet.toml`: its initial text and its parser.

An error in the file is reported with its line; the file is never overwritten.

See: docs/operations.md#what-lies-where.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hearthnet.core.config import Config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

_NO_TEXT: Final = "this is no text in UTF-8, as settings are"
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
# If something else uses port 7422, a free one is taken, shown, and used from then on, as it is for 0: homes
# that joined know the port. Any other number is the port; where that is taken the node does not start.
port = 7422
# What invites say, as a name or address that others can reach: "kitchen.local", "192.0.2.7:7422".
# Empty: this computer's own address.
address = ""
# Whether this home announces itself on its network where others reach it, under a label that only its
# community recognizes, and looks there for a home that it does not reach.
zeroconf = true
# What others wrote before is fetched up to so many megabytes a day, with so many percent of one core.
history_mb = 4000
history_cpu = 80

[services]
# Which services run here. Left out: every service that is installed.
# enabled = ["auth", "llm", "rag", "market", "mesh", "file", "embed", "trans", "mcp"]

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
# Pages from elsewhere that may ask here, with a key: ["https://example.org", "chrome-extension://ID", "app://*"].
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

[audit]
# How long entries of the audit log are kept, in days, and how much of it, in MB; beyond that the oldest are
# removed, never those of the last 25 hours. 0: no limit.
keep_days = 365
max_mb = 1000
# How much of it another member may fill with effects in a day, in MB. 0: any amount.
member_mb_per_day = 16

[backup]
# Where a backup goes while the node runs, such as "/media/backups", how often, and how many of the newest
# stay (0: all). Empty: none on a schedule. It takes the recovery words to open one: hearthnet person words.
folder = ""
every_hours = 24
keep = 14

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
# max_concurrent is how many answers it gives at once: left out 64 on the internet, 4 nearby.
# With "text" for tools a model that calls none writes its calls in its text (docs/models.md).
# [[llm.models]]
# kind = "ollama"
# name = "qwen3-8b"
# url = "http://127.0.0.1:11434"
# model = "qwen3:8b"
# api_key_env = "EXAMPLE_API_KEY"

[embed]
# Offer the small built-in model that turns texts into vectors, for search by meaning. It understands English;
# `make embedding` installs it.
builtin = true
# How many cores it may use. 0: all, at most two.
threads = 0
# A GGUF file of an embedding model to offer as well. Empty: none.
model_file = ""

# Another embedding model. kind is openai (any server with /v1/embeddings) or ollama. Several are fine, the
# first is taken where none is named. Vectors of two models cannot be compared.
# [[embed.models]]
# kind = "ollama"
# name = "nomic-embed-text"
# url = "http://127.0.0.1:11434"
# model = "nomic-embed-text"
# api_key_env = "EXAMPLE_API_KEY"
# languages = ["en"]

# A program whose tools the model may call; `hearthnet mcp add` writes this. Calls are confirmed first, but
# for the tools in read_only. env names environment variables of the node that the program gets.
# [[mcp.servers]]
# name = "notes"
# command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me/notes"]
# read_only = ["read_text_file", "list_directory"]
"""


def load_config(home: Home) -> Config:
    """Read the settings in `home`; the defaults if the file does not exist.

    Raises:
        HearthNetError: `bad_request` for a file that cannot be read, is not text or not TOML, has an unknown
            key or a value of the wrong kind. The message names the file, the line if known, and the remedy.
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
    """Parse the settings in `text`; `file` is named in the error.

    Raises:
        HearthNetError: `bad_request`, as `load_config`.
    """
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
    """Split the parser's message `... (at line 7, column 3)` into its reason and line."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", message, re.DOTALL)
    return (found[1], int(found[2])) if found else (message, None)


def _schema_reason(message: str) -> tuple[str, tuple[str | int, ...]]:
    """Split msgspec's "Expected `int`, got `str` - at `$.server.port`" into reason and path.

    The reason uses the names of the settings in the file.
    """
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
    """Return the line (from 1) of TOML `text` that sets `path` or the closest table around it."""
    lines = _lines(text)
    for size in range(len(path), 0, -1):
        for line in lines:
            if line.path == path[:size]:
                return line.number
    return None


def _lines(text: str) -> list[_Line]:
    """List in order the path that each header and each `key =` of a TOML text sets."""
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
