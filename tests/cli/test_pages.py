"""README.md and docs/cli.md say what is so: their commands run, and no option is left out."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hearthnet.cli.app import app
from hearthnet.core.config_loader import parse_config
from tests.helpers.shell import Shell

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
WITH_A_NEIGHBOUR = (
    "hearthnet invite redeem",
    "hearthnet up",
    "hearthnet revoke Kitchen",
    "hearthnet device join",
)
"""Take a second home; tests/e2e/test_joining.py and test_second_node.py type them."""
WITH_A_SERVER = ("hearthnet models add",)
"""Take a model's server; tests/cli/workflows/test_connect_model.py types them."""
PAGE = (ROOT / "docs" / "cli.md").read_text()
COMMON = PAGE.partition("\n## ")[0]


def commands() -> list[str]:
    """The commands in the README's shell blocks, without their comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    elsewhere = ("hearthnet ask", *WITH_A_NEIGHBOUR, *WITH_A_SERVER)
    return [line for line in lines if line.startswith("hearthnet ") and not line.startswith(elsewhere)]


@pytest.mark.e2e
@pytest.mark.req("CLI-1")
def test_every_command_of_the_readme_runs(shell: Shell) -> None:
    assert len(commands()) > 8
    for command in commands():
        done = subprocess.run(
            [shell.program, *shlex.split(command)[1:]],
            cwd=ROOT,
            env=shell.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout


def test_the_settings_in_the_readme_are_settings() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    neighbours, models = (parse_config(block, Path("README.md")) for block in blocks)
    assert neighbours.community.host == "0.0.0.0"
    assert models.llm.models[0].kind == "ollama"


@pytest.mark.req("CLI-1")
def test_the_page_names_every_command_and_every_option() -> None:
    sections = {section.partition("\n")[0]: section for section in PAGE.split("\n## ")}
    context, found = click.Context(app), 0
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        assert command is not None
        section = "".join(text for head, text in sections.items() if head.startswith(f"`hearthnet {name}"))
        assert section, name
        for words, one in below(command, name):
            named = words.rpartition(" ")[2]
            assert re.search(rf"\b{named}\b", section), f"docs/cli.md does not name {words}"
            long = [opt for parameter in one.params for opt in parameter.opts if opt.startswith("--")]
            missing = [opt for opt in long if not re.search(rf"{opt}\b", section + COMMON)]
            assert not missing, f"docs/cli.md does not name {missing} of {words} in its section"
            found += 1
    assert found > 40


def below(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """The command and those below it, with all their words."""
    yield name, command
    if isinstance(command, click.Group):
        for inner, one in command.commands.items():
            yield from below(one, f"{name} {inner}")
