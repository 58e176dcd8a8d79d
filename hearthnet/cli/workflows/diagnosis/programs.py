"""Checks of what the node runs: nats-server, services, the built-in model, models and MCP servers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from hearthnet import __version__
from hearthnet.cli.workflows.diagnosis.problem import Examined, Problem, fault, of_error, warning
from hearthnet.core.errors import HearthNetError


def server_program(_examined: Examined) -> Iterator[Problem]:
    """Check that nats-server is installed."""
    from hearthnet.supervisor.nats.nats_process import find_program

    try:
        program = find_program()
    except HearthNetError as error:
        yield of_error("server.program", error)
        return
    if not os.access(program, os.X_OK):
        yield fault("server.program", f"{program} cannot be executed", f"run: chmod +x {program}")


def services(examined: Examined) -> Iterator[Problem]:
    """Check that the enabled services are installed, and what packages bring is accepted."""
    from hearthnet.core.entry_points import scan_entry_points
    from hearthnet.supervisor.services.specs import choose, installed

    if examined.config is not None:
        for name in choose(examined.home, examined.config, installed()).missing:
            yield fault(
                "services.installed",
                f"the service {name} is enabled in {examined.home.config_file} but not installed",
                f"install it (pip install hearthnet-{name}), or take it out of [services] enabled",
            )
    refused = examined.node.package_errors if examined.node is not None else scan_entry_points().errors
    for text in refused:
        yield fault("services.packages", text, "install a version of that package that fits, or remove it")


def version(examined: Examined) -> Iterator[Problem]:
    """Check that the node runs the version that is installed."""
    if examined.node is not None and examined.node.version != __version__:
        yield warning(
            "node.version",
            f"the node runs HearthNet {examined.node.version}, and {__version__} is installed",
            "start the node again",
        )


def builtin_model(examined: Examined) -> Iterator[Problem]:
    """Check that the built-in model, where it is wanted, is the expected file."""
    from hearthnet.cli.workflows.builtin_model import intact, model_file

    config = examined.config
    if config is None or not config.llm.builtin or not _runs(examined, "llm"):
        return
    if config.llm.model_file:
        if not Path(config.llm.model_file).is_file():
            yield fault(
                "model.file",
                f"there is no file {config.llm.model_file}, which [llm] model_file names",
                "put the GGUF file there, or leave model_file empty for the built-in model",
            )
        return
    path = model_file()
    if path is None:
        yield warning("model.file", "the built-in model is not installed", "run: hearthnet models install")
    elif not intact(path):
        yield fault("model.file", f"the built-in model {path} is damaged", "run: hearthnet models install")


def environment(examined: Examined) -> Iterator[Problem]:
    """Check that the variables that models and MCP servers need are set, and their programs are there.

    Of a running node, its own environment counts.
    """
    config = examined.config
    if config is None:
        return
    found = _environment(examined)
    for model in config.llm.models:
        if model.api_key_env and not found.get(model.api_key_env):
            yield fault(
                "model.key",
                f"the variable {model.api_key_env} with the key of the model {model.name} is not set",
                f"set it where the node is started: export {model.api_key_env}=..., then start it again",
            )
    for server in config.mcp.servers:
        if missing := [name for name in server.env if name not in found]:
            yield fault(
                "mcp.environment",
                f"the MCP server {server.name} needs {', '.join(missing)}, not set where the node runs",
                "set it where the node is started, then start it again",
            )
        if shutil.which(server.command[0], path=found.get("PATH")) is None:
            yield fault(
                "mcp.program",
                f"there is no program {server.command[0]}, the command of the MCP server {server.name}",
                f"install it, or remove the server: hearthnet mcp remove {server.name}",
            )


def _runs(examined: Examined, service: str) -> bool:
    enabled = examined.config.services.enabled if examined.config is not None else ()
    return enabled is None or service in enabled


def _environment(examined: Examined) -> Mapping[str, str]:
    """Return the environment of the node if it runs and the system shows it, else that of this command."""
    if examined.node is not None:
        try:
            data = Path(f"/proc/{examined.node.pid}/environ").read_bytes()
        except OSError:
            return os.environ
        pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    return os.environ
