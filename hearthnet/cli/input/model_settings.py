"""The models in hearthnet.toml, edited without changing comments and order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthnet.cli.input.settings_file import text_of, write
from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from hearthnet.core.config import ModelConfig
    from hearthnet.core.home import Home


def connected(home: Home) -> tuple[ModelConfig, ...]:
    """Return the models in the settings.

    Raises:
        HearthNetError: `bad_request` if the file is invalid.
    """
    from hearthnet.core.config_loader import load_config

    return load_config(home).llm.models


def names(home: Home) -> tuple[str, ...]:
    """Return their names; none for an invalid file, which is reported elsewhere."""
    try:
        return tuple(model.name for model in connected(home))
    except HearthNetError:
        return ()


def insert(home: Home, model: ModelConfig) -> None:
    """Append `model`; an invalid file is left unchanged.

    Raises:
        HearthNetError: `bad_request` with the place of the error in the file.
    """
    import msgspec
    import tomlkit

    connected(home)
    page = tomlkit.parse(text_of(home))
    llm = page.setdefault("llm", tomlkit.table())
    models: Any = llm.get("models")
    fields = {name: value for name, value in msgspec.to_builtins(model).items() if value not in (None, "")}
    if isinstance(models, tomlkit.items.Array):
        entry: Any = tomlkit.inline_table()
        entry.update(fields)
        models.append(entry)
    else:
        entry = tomlkit.table()
        entry.update(fields)
        if models is None:
            models = llm["models"] = tomlkit.aot()
        models.append(entry)
    write(home, tomlkit.dumps(page))


def delete(home: Home, name: str) -> list[ModelConfig]:
    """Remove and return the models called `name`."""
    import tomlkit

    gone = [model for model in connected(home) if model.name == name]
    if gone:
        page: Any = tomlkit.parse(text_of(home))
        models = page["llm"]["models"]
        for index in reversed(range(len(models))):
            if models[index].get("name") == name:
                del models[index]
        if not models:
            del page["llm"]["models"]
        write(home, tomlkit.dumps(page))
    return gone
