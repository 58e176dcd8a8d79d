"""The MCP servers in hearthnet.toml, edited without changing comments and order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthnet.cli.input.settings_file import text_of, write

if TYPE_CHECKING:
    from hearthnet.core.config import McpServerConfig
    from hearthnet.core.home import Home


def configured(home: Home) -> tuple[McpServerConfig, ...]:
    """Return the servers in the settings.

    Raises:
        HearthNetError: `bad_request` if the file is invalid.
    """
    from hearthnet.core.config_loader import load_config

    return load_config(home).mcp.servers


def insert(home: Home, server: McpServerConfig) -> None:
    """Append `server`; an invalid file is left unchanged.

    Raises:
        HearthNetError: `bad_request` with the place of the error in the file.
    """
    import msgspec
    import tomlkit

    configured(home)
    page: Any = tomlkit.parse(text_of(home))
    section = page.setdefault("mcp", tomlkit.table(is_super_table=True))
    entry: Any = tomlkit.table()
    entry.update(msgspec.to_builtins(server))
    servers = section.get("servers")
    if servers is None:
        servers = section["servers"] = tomlkit.aot()
    if isinstance(servers, tomlkit.items.Array):
        inline: Any = tomlkit.inline_table()
        inline.update(msgspec.to_builtins(server))
        entry = inline
    servers.append(entry)
    write(home, tomlkit.dumps(page))


def delete(home: Home, name: str) -> McpServerConfig | None:
    """Remove and return the server called `name`; None if there is none."""
    import tomlkit

    known = [server.name for server in configured(home)]
    if name not in known:
        return None
    gone = configured(home)[known.index(name)]
    page: Any = tomlkit.parse(text_of(home))
    servers = page["mcp"]["servers"]
    del servers[known.index(name)]
    if not servers:
        del page["mcp"]["servers"]
    write(home, tomlkit.dumps(page))
    return gone
