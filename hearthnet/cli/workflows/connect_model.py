"""`hearthnet models add|remove|test`: models behind URLs, checked by the node before use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input import settings_file
from hearthnet.cli.input.local_call import call_local_node, on_bus
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.suggest import unknown
from hearthnet.cli.output.text import one_line
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hearthnet.bus.bus import Bus
    from hearthnet.core.config import ModelConfig

CHECK: Final = "llm.models.check@1.0"
RELOAD: Final = "llm.models.reload@1.0"
_MAX_LISTED: Final = 40
_OFFERED_SECONDS: Final = 5.0
_SECRET: Final = ("key=", "api_key", "apikey", "token=")


@click.command("add")
@click.argument("what", metavar="KIND|URL")
@click.option("--url", help="Where the server is. Default: where that kind is mostly met.")
@click.option("--model", metavar="NAME", help="The model, by its server's name. Default: you are asked.")
@click.option("--name", help="What the mesh calls it. Default: after the model.")
@click.option(
    "--key-env", metavar="VARIABLE", help="Environment variable of the node that holds the API key."
)
@click.option("--ctx", type=click.IntRange(min=1), help="Tokens of context, where the server does not say.")
@click.option("--tools/--no-tools", default=None, help="Whether it calls tools. Default: it is tried.")
@click.option(
    "--vision/--no-vision", default=None, help="Whether it sees images. Default: as the server says."
)
@click.option("--api-version", help="Azure's api-version, for its older addresses.")
@common_options
def add(what: str, home: Home, json: bool, **options: Any) -> None:
    """Connect a model: ollama, openai, anthropic, ..., or any server with OpenAI's API.

    See docs/models.md for the kinds. The node looks at the server, lists its models, has the one you choose
    call a tool, and offers it at once.
    """
    wish = _wish(what, options)
    listed = call_local_node(home, CHECK, wish) if "model" not in wish else None
    if listed is not None:
        wish["model"] = _chosen([str(model["name"]) for model in listed["models"]], json)
    model_name = str(wish["model"])
    wish.setdefault("name", model_name.rpartition("/")[2].replace(":", "-").lower() or model_name)
    checked = call_local_node(home, CHECK, wish)
    model = _config(checked, wish)
    _settle(home, model, checked["tested"])
    state = _reload(home, model)
    if json:
        terminal.json_page(_as_json(model, checked["tested"], state))
        return
    _show(model, checked["tested"])
    if state["there"]:
        terminal.line(f'offered now; ask it with: hearthnet ask "Hello" --model {one_line(model.name)}')
    else:
        terminal.line(
            f"written, but not offered yet: {one_line(state['problem'] or 'it has not answered yet')}"
        )


@click.command("remove")
@click.argument("name")
@common_options
def remove(name: str, home: Home, json: bool) -> None:
    """Disconnect a model. Calls that run are finished."""
    known = settings_file.settings(home).llm.models
    removed = [model for model in known if model.name == name]
    if not removed:
        raise _unknown(name, known)
    settings_file.delete(home, removed[0])
    problem = _reloaded(home)
    if json:
        terminal.json_page({"removed": [_place(model) for model in removed]})
        return
    for model in removed:
        terminal.line(f"removed: {_described(model)}")
    if problem:
        terminal.info(problem)


@click.command("test")
@click.argument("name")
@common_options
def test(name: str, home: Home, json: bool) -> None:
    """Ask a connected model for one tool call, and show its abilities."""
    known = settings_file.settings(home).llm.models
    models = [model for model in known if name in (model.name, model.model)]
    if not models:
        raise _unknown(name, known)
    outcomes = [
        (model, call_local_node(home, CHECK, settings_file.fields_of(model))["tested"]) for model in models
    ]
    if json:
        terminal.json_page([{**_place(model), **tested} for model, tested in outcomes])
        return
    for model, tested in outcomes:
        _show(model, tested)


def _unknown(name: str, known: Iterable[ModelConfig]) -> HearthNetError:
    names = {model.name for model in known}
    return unknown(
        "connected model", name, names, "no model is connected; add one with: hearthnet models add"
    )


def report_missing(home: Home, offered: Iterable[str]) -> None:
    """Print a line on stderr for each model in the settings that is not offered."""
    for model in settings_file.settings(home).llm.models:
        if model.name not in offered:
            terminal.info(
                f"{one_line(model.name)} is connected and not offered now; see: hearthnet models test "
                f"{one_line(model.name)}"
            )


def _wish(what: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the input of the check; refuse a key in place of a name, without repeating it."""
    from typing import get_args

    from hearthnet.core.config import NO_VARIABLE, ModelKind, names_variable

    kinds = get_args(ModelKind)
    wish = {name: value for name, value in options.items() if value is not None}
    if "://" in what:
        if "url" in wish:
            raise click.UsageError("give the URL once")
        wish["url"] = what
    elif what in kinds:
        wish["kind"] = what
    else:
        raise click.UsageError(f"name one of {', '.join(kinds)}, or the URL of a server")
    variable = wish.pop("key_env", None)
    if variable is not None:
        if not names_variable(variable):
            raise click.UsageError(NO_VARIABLE.replace("api_key_env", "--key-env"))
        wish["api_key_env"] = variable
    if any(word in wish.get("url", "").partition("?")[2].lower() for word in _SECRET):
        raise click.UsageError("leave the key out of the URL; name its environment variable with --key-env")
    return wish


def _chosen(names: list[str], json: bool) -> str:
    """Return the only model, or the one that the person chooses.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` (exit code 7) if there are several and no
            terminal to ask at.
    """
    if not names:
        raise HearthNetError(
            "not_found", "the server has no models yet; load one there, or name it with --model"
        )
    if len(names) == 1:
        return names[0]
    if json or terminal.screen() is None:
        from hearthnet.core.errors import UNCONFIRMED

        shown = ", ".join(names[:_MAX_LISTED]) + (" ..." if len(names) > _MAX_LISTED else "")
        raise HearthNetError(
            "bad_request",
            f"the server has several models; choose one with --model: {one_line(shown)}",
            details={"models": names},
            exit_status=UNCONFIRMED,
        )
    for number, name in enumerate(names[:_MAX_LISTED], start=1):
        terminal.line(f"{number:3}  {one_line(name)}")
    if len(names) > _MAX_LISTED:
        terminal.line(f"     and {len(names) - _MAX_LISTED} more; type the name of one")
    return _picked(names)


def _picked(names: list[str]) -> str:
    """Return the model for a typed number of the list, or a typed name."""
    while True:
        typed = str(click.prompt("which one?", prompt_suffix=" ")).strip()
        if typed in names:
            return typed
        if typed.isdecimal() and 1 <= int(typed) <= len(names):
            return names[int(typed) - 1]
        terminal.line("type a number of the list, or a name in it")


def _config(checked: dict[str, Any], wish: dict[str, Any]) -> ModelConfig:
    """Return the settings to write: the found server and the given options.

    `tools` records the result of the test: whether tools were called, and how.
    """
    import msgspec

    from hearthnet.core.config import ModelConfig

    fields: dict[str, Any] = {
        name: wish[name]
        for name in ("name", "model", "ctx", "tools", "vision", "api_version")
        if name in wish
    }
    if not checked["tested"]["tool_call"]:
        fields.setdefault("tools", False)
    elif checked["tested"].get("tool_mode") == "text":
        fields.setdefault("tools", "text")
    fields |= {name: checked[name] for name in ("kind", "url", "api_key_env")}
    return msgspec.convert(fields, ModelConfig)


def _settle(home: Home, model: ModelConfig, tested: dict[str, Any]) -> None:
    """Write the model, unless it is connected already or does not answer."""
    if not (tested["tool_call"] or tested["answered"]):
        raise HearthNetError(
            "internal_error",
            f"{model.model} answers with nothing, so it was not connected; try another model",
        )
    for known in settings_file.settings(home).llm.models:
        if (known.kind, known.url, known.model) == (model.kind, model.url, model.model):
            raise HearthNetError(
                "bad_request",
                f"{model.model} is connected already, as {known.name}; to change it, remove it first: "
                f"hearthnet models remove {known.name}",
            )
    settings_file.insert(home, model)


def _reload(home: Home, model: ModelConfig) -> dict[str, Any]:
    """Return the model's state at the node, after the node has read its settings.

    If the model is available, this waits for its offer.
    """
    reloaded = call_local_node(home, RELOAD, {})
    if reloaded["problem"]:
        raise HearthNetError("bad_request", str(reloaded["problem"]))
    state = next(state for state in reloaded["models"] if state["name"] == model.name)
    if state["there"]:
        on_bus(home, lambda bus: _until_offered(bus, model.name))
    return dict(state)


async def _until_offered(bus: Bus, name: str) -> None:
    """Wait until the offer is visible in the mesh."""
    import asyncio
    import time

    end = time.monotonic() + _OFFERED_SECONDS
    while time.monotonic() < end:
        if any(view.params.get("model") == name for view in await bus.offers("llm.chat")):
            return
        await asyncio.sleep(0.05)


def _reloaded(home: Home) -> str:
    """Have a running node read its settings; return the problem, if any."""
    try:
        return str(call_local_node(home, RELOAD, {})["problem"])
    except HearthNetError as error:
        return "" if error.code in ("partition", "not_found") else error.message


def _place(model: ModelConfig) -> dict[str, Any]:
    """Return the model and its server, without user and password, which must not be displayed."""
    from hearthnet.models.urls import without_login

    url, _ = without_login(model.url)
    return {"name": model.name, "kind": model.kind, "url": url, "model": model.model}


def _as_json(model: ModelConfig, tested: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    shown = {
        name: tested[name]
        for name in ("ctx", "tools", "tool_mode", "vision", "requires_internet", "tool_call", "ms")
    }
    offer = {"offered": state["there"], "problem": state["problem"] or tested["problem"]}
    return {**_place(model), "api_key_env": model.api_key_env, **shown, **offer}


def _show(model: ModelConfig, tested: dict[str, Any]) -> None:
    terminal.line(_described(model))
    spoke = (
        "calls the tool"
        if tested["tool_call"]
        else "answers"
        if tested["answered"]
        else "answers with nothing"
    )
    terminal.line(f"  {spoke}, after {tested['ms'] / 1000:.1f} s")
    why = f" ({one_line(tested['problem'])})" if tested["problem"] else ""
    terminal.line(f"  tools: {_tools(model, tested)}{why}")
    terminal.line(f"  images: {_yes_or_no(tested['vision'])}")
    terminal.line(f"  context: {tested['ctx']} tokens")
    terminal.line(f"  needs the internet: {_yes_or_no(tested['requires_internet'])}")


def _described(model: ModelConfig) -> str:
    place = _place(model)
    return one_line(f"{model.name}: {model.model} at {place['url']} ({model.kind})")


def _tools(model: ModelConfig, tested: dict[str, Any]) -> str:
    if tested.get("tool_mode") != "text":
        return _yes_or_no(tested["tools"])
    switch = "" if model.tools == "text" else '; to use that set tools = "text" for it in hearthnet.toml'
    return f"written in its text, since it has no calls of its own{switch}"


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"
