"""The MCP servers in hearthnet.toml, edited so that comments and order stay as the person wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthnet.cli.settings_file import text_of, write

if TYPE_CHECKING:
    from hearthnet.config import McpServerConfig
    from hearthnet.home import Home


def configured(home: Home) -> tuple[McpServerConfig, ...]:
    """The servers that the settings name; `bad_request` where the file is wrong."""
    from hearthnet.config_file import load_config

    return load_config(home).mcp.servers


def insert(home: Home, server: McpServerConfig) -> None:
    """Writes `server` as the last one. A file that is wrong is left alone, and `bad_request` says where."""
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
    """Takes the server called `name` out; which it was, None where there is none."""
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
