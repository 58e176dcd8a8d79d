"""hearthnet.toml, for commands that edit it without changing the person's layout.

Models and MCP servers are tables in a list: `[[llm.models]]`, `[[mcp.servers]]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.core.config import Config, McpServerConfig, ModelConfig


def settings(home: Home) -> Config:
    """Return the settings in the file.

    Raises:
        HearthNetError: `bad_request` if the file is invalid.
    """
    from hearthnet.core.config_loader import load_config

    return load_config(home)


def model_names(home: Home) -> tuple[str, ...]:
    """Return the names of the models; none for an invalid file, which is reported elsewhere."""
    try:
        return tuple(model.name for model in settings(home).llm.models)
    except HearthNetError:
        return ()


def insert(home: Home, entry: ModelConfig | McpServerConfig) -> None:
    """Append a model or an MCP server; an invalid file is left unchanged.

    Raises:
        HearthNetError: `bad_request` with the place of the error in the file.
    """
    import tomlkit

    settings(home)
    section, key = _place(entry)
    page: Any = tomlkit.parse(text_of(home))
    table = page.setdefault(section, tomlkit.table(is_super_table=True))
    if table.get(key) is None:
        table[key] = tomlkit.aot()
    added: Any = tomlkit.inline_table() if isinstance(table[key], tomlkit.items.Array) else tomlkit.table()
    added.update(fields_of(entry))
    table[key].append(added)
    write(home, tomlkit.dumps(page))


def delete(home: Home, entry: ModelConfig | McpServerConfig) -> None:
    """Remove all models or MCP servers with the name of `entry`."""
    import tomlkit

    section, key = _place(entry)
    page: Any = tomlkit.parse(text_of(home))
    entries = page[section][key]
    for index in reversed(range(len(entries))):
        if entries[index].get("name") == entry.name:
            del entries[index]
    if not entries:
        del page[section][key]
    write(home, tomlkit.dumps(page))


def fields_of(entry: ModelConfig | McpServerConfig) -> dict[str, Any]:
    """Return the fields of an entry that have a value."""
    import msgspec

    fields = msgspec.to_builtins(entry)
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _place(entry: ModelConfig | McpServerConfig) -> tuple[str, str]:
    from hearthnet.core.config import ModelConfig

    return ("llm", "models") if isinstance(entry, ModelConfig) else ("mcp", "servers")


def text_of(home: Home) -> str:
    """Return its text with its line ends, empty if there is no file."""
    try:
        return home.config_file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""


def write(home: Home, text: str) -> None:
    """Write the new text, unless it is no longer valid as settings."""
    from hearthnet.core.config_loader import parse_config
    from hearthnet.core.files import write_whole
    from hearthnet.supervisor.os.disk import file_errors

    try:
        parse_config(text, home.config_file)
    except HearthNetError as error:
        raise HearthNetError(
            "bad_request",
            f"{home.config_file} cannot be edited by this command ({error.message}); edit it by hand",
        ) from error
    file = home.config_file.resolve()
    with file_errors(file):
        write_whole(file, text.encode("utf-8"), durable=True)
